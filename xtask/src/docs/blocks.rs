//! The fenced code blocks of a document, and the tags in their info strings.

/// Who runs a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// `sh test`: run in a scratch directory, the binary on the path.
    Test,
    /// `sh test repo`: run at the root of the repository.
    TestInRepo,
    /// `sh server`: as `sh test`, in the background until the document ends.
    Server,
    /// `sh server repo`: as `sh server`, at the root of the repository.
    ServerInRepo,
    /// `sh ci`: `.ci/run` has the same command.
    Ci,
    /// `text output`: the output of the block before it.
    Output,
    /// Not a command.
    Other,
    /// A shell block without one of the tags above.
    Unknown,
}

pub(crate) struct Block {
    pub(crate) tag: Tag,
    /// Line of the opening fence, from 1.
    pub(crate) line: usize,
    pub(crate) body: String,
}

impl Block {
    /// The block's lines without blanks and comments.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &str> {
        self.body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    }
}

/// The blocks of a document in order. A block with more backticks may contain a fence with fewer; indented
/// fences count.
pub(crate) fn parse(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Block, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let ticks = line.trim_start().chars().take_while(|c| *c == '`').count();
        let info = line.trim_start().trim_start_matches('`');
        match open.take() {
            Some((block, fence)) if ticks >= fence && info.trim().is_empty() => blocks.push(block),
            Some((mut block, fence)) => {
                block.body.push_str(line);
                block.body.push('\n');
                open = Some((block, fence));
            }
            None if ticks >= 3 => {
                open = Some((Block { tag: tag(info), line: number + 1, body: String::new() }, ticks));
            }
            None => {}
        }
    }
    blocks
}

fn tag(info: &str) -> Tag {
    let words: Vec<&str> = info.split_whitespace().collect();
    match words.as_slice() {
        ["sh", "test"] => Tag::Test,
        ["sh", "test", "repo"] => Tag::TestInRepo,
        ["sh", "server"] => Tag::Server,
        ["sh", "server", "repo"] => Tag::ServerInRepo,
        ["sh", "ci"] => Tag::Ci,
        ["text", "output"] => Tag::Output,
        ["sh" | "bash" | "shell" | "console", ..] => Tag::Unknown,
        _ => Tag::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_follow_the_info_string() {
        let text =
            "a\n```sh test\nx\ny\n```\n```text output\nz\n```\n```sh\n```\n```rust\n```\n```sh ci\nc\n```\n";
        let blocks = parse(text);
        let found: Vec<_> = blocks.iter().map(|b| (b.tag, b.line, b.body.as_str())).collect();
        let expected = [
            (Tag::Test, 2, "x\ny\n"),
            (Tag::Output, 6, "z\n"),
            (Tag::Unknown, 9, ""),
            (Tag::Other, 11, ""),
            (Tag::Ci, 13, "c\n"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn longer_fences_show_shorter_ones() {
        let blocks = parse("````md\n```sh\nx\n```\n````\n");
        assert_eq!(blocks.len(), 1);
        assert_eq!((blocks[0].tag, blocks[0].body.as_str()), (Tag::Other, "```sh\nx\n```\n"));
    }

    #[test]
    fn commands_leave_out_comments() {
        let blocks = parse("```sh ci\n# why\n\n cargo test\n```\n");
        assert_eq!(blocks[0].commands().collect::<Vec<_>>(), ["cargo test"]);
    }
}
