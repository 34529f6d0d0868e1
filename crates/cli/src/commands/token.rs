//! `promethean token`: creates tokens, hashes them, and prints what they allow.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use promethean_gateway::auth::jwt::sign;
use promethean_gateway::auth::static_token::mint;
use promethean_gateway::auth::{Grants, Identity, Secret, TokenHash};
use promethean_model::{Clock, Millis, Moment, SystemClock};
use serde_json::{Value, json};

use super::exit_code;
use crate::config;
use crate::output::{JsonLine, print_line};

/// Longest token that is read from standard input.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// The subcommands of `promethean token`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it once, with its entry for the configuration
    New(NewArgs),
    /// Print the hash of a token for the configuration
    Hash(HashArgs),
    /// Print the name of a token and what it allows; exits with 1 if it is not valid
    Check(TokenCheckArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean token new --name shop --scope 'publish:orders.**'\n  promethean token new --name ci --scope admin --jwt --secret-file key.txt"
)]
pub(crate) struct NewArgs {
    /// The name of its owner, as logs show it
    #[arg(long)]
    name: String,
    /// What it allows: publish:TOPIC, subscribe:TOPIC or subscribe:TOPIC@GROUP, read:COLLECTION,
    /// manage:TOPIC, admin, or ! and one of these to deny; can be given several times
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    scopes: Vec<String>,
    /// How long it is valid, such as 30d [default: for ever, with --jwt 1h]
    #[arg(long, value_name = "TIME")]
    ttl: Option<Millis>,
    /// Create a JSON web token, signed with HS256, which needs no entry in the configuration
    #[arg(long, requires = "secret_file")]
    jwt: bool,
    /// The file with the secret that signs the JSON web token, at least 32 bytes
    #[arg(long, value_name = "FILE", requires = "jwt")]
    secret_file: Option<PathBuf>,
    /// The issuer (`iss`) of the JSON web token
    #[arg(long, requires = "jwt")]
    issuer: Option<String>,
    /// The audience (`aud`) of the JSON web token; can be given several times
    #[arg(long, requires = "jwt")]
    audience: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean token hash < token.txt\n  promethean token hash --json < token.txt"
)]
pub(crate) struct HashArgs {
    /// The token; `-` reads it from standard input, where other programs cannot see it
    #[arg(default_value = "-")]
    token: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean token check --config promethean.toml < token.txt\n  promethean token check --config promethean.toml --json < token.txt"
)]
pub(crate) struct TokenCheckArgs {
    /// The token; `-` reads it from standard input, where other programs cannot see it
    #[arg(default_value = "-")]
    token: String,
    /// The configuration that has the tokens and keys to check against
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &TokenCommand) -> Result<ExitCode> {
    match command {
        TokenCommand::New(args) => new(args).map(|()| ExitCode::SUCCESS),
        TokenCommand::Hash(args) => hash(args).map(|()| ExitCode::SUCCESS),
        TokenCommand::Check(args) => check(args),
    }
}

fn new(args: &NewArgs) -> Result<()> {
    if args.name.is_empty() || args.name.len() > 256 || args.name.chars().any(char::is_control) {
        bail!(
            "--name is empty, longer than 256 bytes, or has control characters; logs must be able to show it"
        );
    }
    let scopes = Grants::parse(&args.scopes).context("--scope")?.scopes();
    let now_ms = SystemClock::new().wall_ms();
    let ttl = args.ttl.or(args.jwt.then_some(Millis::from_hours(1)));
    let expires = ttl.map(|ttl| now_ms.saturating_add_unsigned(ttl.get()));
    match &args.secret_file {
        Some(file) => new_jwt(args, file, &scopes, now_ms, expires.unwrap_or(now_ms)),
        None => new_static(args, &scopes, expires.map(Moment::from_ms)),
    }
}

fn new_static(args: &NewArgs, scopes: &[String], expires: Option<Moment>) -> Result<()> {
    let token = mint()?;
    let token = token.reveal_text().unwrap_or_default();
    // Whole seconds, because the configuration is printed with whole seconds.
    let expires = expires.map(|moment| Moment::from_ms(moment.ms() / 1000 * 1000));
    let hash = TokenHash::of(token);
    if args.json {
        let line = JsonLine::new().with("token", token).with("name", args.name.as_str());
        let line = line.with("sha256", hash.to_string()).with("scopes", scopes.to_vec());
        return line.with("expires", expires.map(|moment| moment.to_string())).print();
    }
    // JSON text without control characters is TOML text too.
    let mut entry = format!("[[auth.tokens]]\nname = {}\nsha256 = \"{hash}\"\n", json!(args.name));
    entry += &format!("scopes = {}", json!(scopes));
    if let Some(expires) = expires {
        entry += &format!("\nexpires = {expires}");
    }
    print_line(&format!(
        "{token}\n\nThis is shown once. For the configuration, which needs only its hash:\n\n{entry}"
    ))?;
    Ok(())
}

fn new_jwt(args: &NewArgs, file: &Path, scopes: &[String], now_ms: i64, expires_ms: i64) -> Result<()> {
    let secret = config::read_secret(file).context("--secret-file")?;
    let (issued_s, expires_s) = (now_ms / 1000, expires_ms / 1000);
    let mut claims = json!({"sub": args.name, "iat": issued_s, "exp": expires_s, "scope": scopes.join(" ")});
    let mut set = |name: &str, value: Value| {
        if let Some(claims) = claims.as_object_mut() {
            claims.insert(name.to_owned(), value);
        }
    };
    if let Some(issuer) = &args.issuer {
        set("iss", json!(issuer));
    }
    match args.audience.as_slice() {
        [] => {}
        [one] => set("aud", json!(one)),
        many => set("aud", json!(many)),
    }
    let token = sign::hs256(&secret, &claims).context("--secret-file")?;
    let token = token.reveal_text().unwrap_or_default();
    let expires = Moment::from_ms(expires_s * 1000).to_string();
    if args.json {
        return JsonLine::new().with("token", token).with("claims", claims).with("expires", expires).print();
    }
    print_line(&format!("{token}\n\nValid until {expires} on every server that has the secret."))?;
    Ok(())
}

fn hash(args: &HashArgs) -> Result<()> {
    let token = given(&args.token)?;
    let hash = TokenHash::of(token.reveal_text().unwrap_or_default()).to_string();
    if args.json {
        return JsonLine::new().with("sha256", hash).print();
    }
    Ok(print_line(&hash)?)
}

fn check(args: &TokenCheckArgs) -> Result<ExitCode> {
    let token = given(&args.token)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let auth = config::load(&args.config)?.authenticator(&clock)?;
    if auth.is_open() {
        bail!("`{}` asks for no token, so there is nothing to check", args.config.display());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(auth.authenticate(token.reveal_text())) {
        Ok(identity) => {
            show(&identity, args.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            if args.json {
                let line = JsonLine::new().with("valid", false).with("error", error.code());
                line.with("message", error.to_string()).print()?;
            } else {
                print_line(&format!("{}: {error}", error.code()))?;
            }
            Ok(exit_code(false))
        }
    }
}

fn show(identity: &Identity, json: bool) -> Result<()> {
    let scopes = identity.grants.scopes();
    let expires = identity.expires_ms.map(|ms| Moment::from_ms(ms).to_string());
    if json {
        let line = JsonLine::new().with("valid", true).with("name", &*identity.name).with("scopes", scopes);
        return line.with("expires", expires).print();
    }
    let until = expires.unwrap_or_else(|| "never".to_owned());
    let scopes = if identity.grants.is_empty() { vec!["nothing".to_owned()] } else { scopes };
    let name = identity.name.escape_debug();
    Ok(print_line(&format!("name     {name}\nexpires  {until}\nallows   {}", scopes.join("\n         ")))?)
}

/// The token of the argument; `-` reads it from standard input.
fn given(token: &str) -> Result<Secret> {
    if token != "-" {
        return Ok(token.into());
    }
    let mut text = String::new();
    std::io::stdin()
        .take(TOKEN_BYTES_MAX)
        .read_to_string(&mut text)
        .context("read the token from standard input")?;
    let token = text.trim_end_matches(['\r', '\n']);
    if token.is_empty() {
        bail!("no token was given; name it, or write it to standard input");
    }
    Ok(token.into())
}
