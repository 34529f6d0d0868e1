use crate::args::VerifyArgs;
use std::process::ExitCode;
pub(crate) fn run(_args: &VerifyArgs) -> anyhow::Result<ExitCode> { Ok(ExitCode::SUCCESS) }
