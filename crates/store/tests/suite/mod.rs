mod conformance;
mod embedded;
mod full_memory_refuses_and_resumes;
mod support;
