# The front door. `just` is a convenience: each recipe is one command that works without it.

[private]
default:
    @just --list

# Format everything
fmt:
    cargo fmt --all

# Lint as CI does
lint:
    cargo clippy --workspace --all-targets -- -D warnings
    cargo clippy --workspace --all-targets --all-features -- -D warnings

# Run all tests
test:
    cargo test --workspace

# Everything CI runs, in the same order
check:
    .ci/run

# Measure the log on this machine; arguments go to `promethean bench log`
bench *ARGS:
    cargo run --release --bin promethean -- bench log {{ARGS}}

# Show that the suite catches each planted bug
planted:
    cargo xtask planted

# Run the commands in the documents
docs:
    cargo xtask docs-commands
