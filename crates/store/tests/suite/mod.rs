mod conformance;
mod embedded;
mod support;
