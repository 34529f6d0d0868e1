//! `promethean cheat`: answers to copy. A test runs every command.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::failure::{CommandFailure, FailureKind};
use crate::output::{Paint, Tone, print_json, print_line};

/// The flags of `promethean cheat`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  promethean cheat\n  promethean cheat dead letters")]
pub(crate) struct CheatArgs {
    /// Only answers about these words
    words: Vec<String>,
    /// Print JSON, one object on each line
    #[arg(long)]
    json: bool,
}

/// A question that users ask, and the commands that answer it. The commands of all answers can run one after the
/// other on a new server.
struct Cheat {
    question: &'static str,
    commands: &'static str,
}

const fn cheat(question: &'static str, commands: &'static str) -> Cheat {
    Cheat { question, commands }
}

const CHEATS: &[Cheat] = &[
    cheat("publish an event", "promethean pub orders.placed '{\"order\": 1, \"total\": 20}'"),
    cheat(
        "publish with a key, a header and an id",
        "promethean pub orders.placed '{\"order\": 2, \"total\": 7}' --key ada -H 'x-region: eu' --id 0b7a34f2-9a53-4f8e-8f0a-3a1c0c7d5e11",
    ),
    cheat(
        "publish each line of a file or of a pipe",
        "printf '{\"order\": %d, \"total\": 50}\\n' 3 4 5 > lines.ndjson\npromethean pub orders.placed --file lines.ndjson\nseq 3 | promethean pub numbers.seen",
    ),
    cheat(
        "make test events, at a rate",
        "promethean pub load.test '{\"n\": {{count}}, \"colour\": \"{{pick red green}}\"}' --template --key 'k{{random 1 9}}' --count 50 --rate 500",
    ),
    cheat("see the latest events", "promethean tail orders.placed -n 3"),
    cheat("look at events of the last hour", "promethean tail orders.placed --from \"1h ago\" --format raw"),
    cheat(
        "find events (jq runs here, not on the server)",
        "promethean tail orders.placed --from earliest --filter '.payload.total > 10 and .key == null'",
    ),
    cheat("watch a topic as it grows", "promethean sub orders.placed --from earliest --limit 2"),
    cheat(
        "handle each event once in a group of workers",
        "promethean sub orders.placed --group billing --from earliest --limit 3 --format json | while read -r event; do echo \"$event\" | head -c 60; done",
    ),
    cheat(
        "print only some fields",
        "promethean tail orders.placed --template '{{time}} {{offset}} {{payload.order}}'",
    ),
    cheat(
        "list topics, and show one with its settings",
        "promethean topics list\npromethean topics show orders.placed",
    ),
    cheat(
        "keep events for a week; keep only the latest of each key",
        "promethean topics set orders.placed retention.age=7d\npromethean topics set prices.latest compacted=true",
    ),
    cheat("delete a topic with its events", "promethean topics delete load.test --yes"),
    cheat(
        "see which groups are behind, and why they wait",
        "promethean groups list\npromethean groups show billing",
    ),
    cheat(
        "handle everything again from an hour ago (look first)",
        "promethean seek billing --to \"1h ago\" --dry-run\npromethean seek billing --to \"1h ago\"",
    ),
    cheat("stop a group for a while", "promethean groups pause billing\npromethean groups resume billing"),
    cheat(
        "look at dead letters, and deliver them again",
        "promethean dlq list billing\npromethean dlq redrive billing --all || echo 'there were none'",
    ),
    cheat(
        "copy a topic to a file, and into another topic",
        "promethean export orders.placed orders.ndjson.gz\npromethean import orders.copy orders.ndjson.gz",
    ),
    cheat("check that the server is well", "promethean health\npromethean ops"),
    cheat(
        "name a server, with its token, and use it",
        "promethean token new --name me --scope admin > token.txt\nsed -n 1p token.txt | promethean context add there --url http://127.0.0.1:8090 --token-stdin\npromethean context list\npromethean context remove there",
    ),
    cheat(
        "register a schema, and check a payload",
        "echo '{\"type\": \"object\", \"required\": [\"order\"]}' > order.json\npromethean schema add orders.placed order.json\necho '{\"order\": 9}' | promethean schema validate orders.placed -",
    ),
    cheat(
        "check a configuration before a restart",
        "echo 'listen = \"127.0.0.1:8090\"' > promethean.toml\npromethean lint --config promethean.toml",
    ),
];

pub(crate) fn run(args: &CheatArgs) -> Result<ExitCode> {
    let words: Vec<String> = args.words.iter().map(|word| word.to_lowercase()).collect();
    let is_wanted = |cheat: &&Cheat| {
        let text = format!("{} {}", cheat.question, cheat.commands).to_lowercase();
        words.iter().all(|word| text.contains(word))
    };
    let found: Vec<&Cheat> = CHEATS.iter().filter(is_wanted).collect();
    if found.is_empty() {
        let message =
            format!("no answer has the words `{}`; `promethean cheat` shows all", args.words.join(" "));
        return Err(CommandFailure::new(FailureKind::NotFound, message).into());
    }
    let paint = Paint::stdout();
    for Cheat { question, commands } in found {
        if args.json {
            print_json(&json!({"question": question, "commands": commands}))?;
            continue;
        }
        print_line(&paint.paint(Tone::Strong, &format!("# {question}")))?;
        print_line(&format!("{commands}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
