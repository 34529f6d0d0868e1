//! Texts with places to fill in, such as `{{count}}` or `{{random 1 100}}`.

use anyhow::{Result, anyhow, bail};

/// A text with places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextTemplate {
    pieces: Vec<TemplatePiece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Place(TemplatePlace),
}

/// A place: a word, and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplatePlace {
    pub(crate) word: String,
    pub(crate) args: Vec<String>,
}

impl TextTemplate {
    /// Reads a text. Each place must pass `check`, which says what is wrong with it.
    pub(crate) fn parse(text: &str, check: impl Fn(&TemplatePlace) -> Result<()>) -> Result<Self> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((inside, left)) = after.split_once("}}") else {
                bail!("`{{{{{after}` has no end; close it with `}}}}`");
            };
            let mut words = inside.split_whitespace().map(str::to_owned);
            let word = words
                .next()
                .ok_or_else(|| anyhow!("`{{{{}}}}` is empty; write a word in it, as in `{{{{count}}}}`"))?;
            let place = TemplatePlace { word, args: words.collect() };
            check(&place)?;
            pieces.push(TemplatePiece::Text(before.to_owned()));
            pieces.push(TemplatePiece::Place(place));
            rest = left;
        }
        pieces.push(TemplatePiece::Text(rest.to_owned()));
        Ok(Self { pieces })
    }

    /// A text without places.
    pub(crate) fn verbatim(text: &str) -> Self {
        Self { pieces: vec![TemplatePiece::Text(text.to_owned())] }
    }

    /// The text with its places filled in.
    pub(crate) fn fill(&self, mut value: impl FnMut(&TemplatePlace) -> String) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => out.push_str(text),
                TemplatePiece::Place(place) => out.push_str(&value(place)),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_in() {
        let template =
            TextTemplate::parse(r#"{"n":{{count}},"a":{"b":{{ random 1 9 }}}}"#, |_| Ok(())).unwrap();
        let filled = template.fill(|place| format!("<{} {}>", place.word, place.args.join(",")));
        assert_eq!(filled, r#"{"n":<count >,"a":{"b":<random 1,9>}}"#);
        assert!(TextTemplate::parse("{{n", |_| Ok(())).unwrap_err().to_string().contains("close it"));
        assert!(TextTemplate::parse("{{ }}", |_| Ok(())).is_err());
        assert!(TextTemplate::parse("{{m}}", |place| bail!("no {}", place.word)).is_err());
    }
}
