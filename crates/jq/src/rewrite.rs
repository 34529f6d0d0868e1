//! Puts the guards into a program: a term that can grow without a step is made to take one, or its value is
//! measured.
//!
//! - `[f]` becomes `[f | .]`, so that every item is a step.
//! - `a + b` becomes `a + b | !sized`, so that a value that doubles is measured. Updates, slices and functions that copy
//!   their input are measured too.
//! - `a / b`, which splits texts, and functions that fill a list are followed by `!filled`.
//! - `a * b` becomes `!mul(a; b)`, which measures before it multiplies.
//! - `p += f` and `p *= f` become `f as $y | p |= (. + $y)`, and then the same.
//! - `"\(f)"` becomes `"\(f | !small)" | !sized`, and `tojson` `!small | tojson`: a small value that shares
//!   its parts can be a large text.

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::ops::Math;
use jaq_core::path::{Part, Path};

use super::names::{COPYING, FILLED, FILLING, MUL, SIZED, SMALL};

/// The name of the variable in rewritten updates. No program can name it.
const ADDEND: &str = "$!y";

pub(super) fn definition(def: Def<&str>) -> Def<&str> {
    Def { body: term(def.body), ..def }
}

pub(super) fn term<'s>(old: Term<&'s str>) -> Term<&'s str> {
    match old {
        Term::Id | Term::Recurse | Term::Num(_) | Term::Break(_) | Term::Var(_) => old,
        Term::Str(format, parts) => text(format, parts),
        Term::Arr(items) => Term::Arr(items.map(|items| Box::new(pipe(term(*items), Term::Id)))),
        Term::Obj(members) => {
            let member =
                |(name, value): (Term<&'s str>, Option<Term<&'s str>>)| (term(name), value.map(term));
            Term::Obj(members.into_iter().map(member).collect())
        }
        Term::Neg(inner) => Term::Neg(boxed(*inner)),
        Term::BinOp(left, op, right) => operation(term(*left), op, term(*right)),
        Term::Label(name, inner) => Term::Label(name, boxed(*inner)),
        Term::Fold(word, source, bound, arguments) => {
            Term::Fold(word, boxed(*source), pattern(bound), arguments.into_iter().map(term).collect())
        }
        Term::TryCatch(tried, caught) => Term::TryCatch(boxed(*tried), caught.map(|caught| boxed(*caught))),
        Term::IfThenElse(cases, otherwise) => {
            let case = |(condition, then)| (term(condition), term(then));
            Term::IfThenElse(cases.into_iter().map(case).collect(), otherwise.map(|other| boxed(*other)))
        }
        Term::Def(defs, inner) => Term::Def(defs.into_iter().map(definition).collect(), boxed(*inner)),
        Term::Call("tojson", arguments) if arguments.is_empty() => {
            pipe(Term::Call(SMALL, Vec::new()), sized(Term::Call("tojson", arguments)))
        }
        Term::Call(name, arguments) if COPYING.contains(&name) && arguments.is_empty() => {
            sized(Term::Call(name, arguments))
        }
        Term::Call(name, arguments) if FILLING.contains(&name) => {
            filled(Term::Call(name, arguments.into_iter().map(term).collect()))
        }
        Term::Call(name, arguments) => Term::Call(name, arguments.into_iter().map(term).collect()),
        Term::Path(from, Path(parts)) => {
            // `.[]` is a range without ends; it copies nothing.
            let slices = parts
                .iter()
                .any(|(part, _)| matches!(part, Part::Range(from, to) if from.is_some() || to.is_some()));
            let parts = parts.into_iter().map(|(part, optional)| (step(part), optional));
            let path = Term::Path(boxed(*from), Path(parts.collect()));
            if slices { sized(path) } else { path }
        }
    }
}

fn operation<'s>(left: Term<&'s str>, op: BinaryOp<&'s str>, right: Term<&'s str>) -> Term<&'s str> {
    match op {
        BinaryOp::Math(Math::Mul) => Term::Call(MUL, vec![left, right]),
        BinaryOp::Math(Math::Add) => sized(binary(left, op, right)),
        BinaryOp::UpdateMath(math @ (Math::Add | Math::Mul)) => {
            let changed = operation(Term::Id, BinaryOp::Math(math), Term::Var(ADDEND));
            let update = sized(binary(left, BinaryOp::Update, changed));
            binary(right, BinaryOp::Pipe(Some(Pattern::Var(ADDEND))), update)
        }
        BinaryOp::Math(Math::Div) => filled(binary(left, op, right)),
        BinaryOp::Update | BinaryOp::Assign | BinaryOp::UpdateAlt | BinaryOp::UpdateMath(_) => {
            sized(binary(left, op, right))
        }
        BinaryOp::Pipe(Some(bound)) => binary(left, BinaryOp::Pipe(Some(pattern(bound))), right),
        other => binary(left, other, right),
    }
}

fn text<'s>(format: Option<&'s str>, parts: Vec<StrPart<&'s str, Term<&'s str>>>) -> Term<&'s str> {
    let grows = parts.iter().any(|part| matches!(part, StrPart::Term(_)));
    let part = |part| match part {
        StrPart::Term(inner) => StrPart::Term(pipe(term(inner), Term::Call(SMALL, Vec::new()))),
        other => other,
    };
    let text = Term::Str(format, parts.into_iter().map(part).collect());
    if grows { sized(text) } else { text }
}

fn pattern(old: Pattern<&str>) -> Pattern<&str> {
    match old {
        Pattern::Var(_) => old,
        Pattern::Arr(items) => Pattern::Arr(items.into_iter().map(pattern).collect()),
        Pattern::Obj(members) => {
            Pattern::Obj(members.into_iter().map(|(name, inner)| (term(name), pattern(inner))).collect())
        }
    }
}

fn step(part: Part<Term<&str>>) -> Part<Term<&str>> {
    match part {
        Part::Index(index) => Part::Index(term(index)),
        Part::Range(from, to) => Part::Range(from.map(term), to.map(term)),
    }
}

fn sized(inner: Term<&str>) -> Term<&str> {
    pipe(inner, Term::Call(SIZED, Vec::new()))
}

fn filled(inner: Term<&str>) -> Term<&str> {
    pipe(inner, Term::Call(FILLED, Vec::new()))
}

fn pipe<'s>(left: Term<&'s str>, right: Term<&'s str>) -> Term<&'s str> {
    binary(left, BinaryOp::Pipe(None), right)
}

fn binary<'s>(left: Term<&'s str>, op: BinaryOp<&'s str>, right: Term<&'s str>) -> Term<&'s str> {
    Term::BinOp(Box::new(left), op, Box::new(right))
}

fn boxed(inner: Term<&str>) -> Box<Term<&str>> {
    Box::new(term(inner))
}
