mod checks_end_within_their_steps;
mod compatible_is_never_refuted;
mod declared_oracle;
mod known_cases_are_answered;
mod official_suite_passes;
mod random_schemas;
