//! The modules of a crate: what each defines, imports and names.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use proc_macro2::Delimiter;

use super::{
    Graph,
    token::{
        Token::{self, Colons, Group, Sign, Word},
        tokens,
    },
};

/// Words before the name of an item.
const DEFINITIONS: [&str; 9] = ["const", "enum", "fn", "macro_rules", "static", "struct", "trait", "type", "union"];
/// Words that may stand between those and the name.
const MODIFIERS: [&str; 5] = ["async", "extern", "fn", "mut", "unsafe"];

type Path = Vec<String>;

#[derive(Debug, Default)]
struct Module {
    file: String,
    parent: usize,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    /// Names that `use` brings in, and what they stand for.
    imports: BTreeMap<String, Path>,
    /// Modules from which `use` brings in everything.
    globs: Vec<Path>,
    /// All paths that are written in it.
    paths: Vec<Path>,
}

/// All modules of a crate; the first is its root.
#[derive(Debug, Default)]
pub(super) struct Modules(Vec<Module>);

/// The definition that a path leads to.
#[derive(Clone, Copy)]
enum Target {
    Item(usize),
    Module(usize),
    /// Another crate, or a name that is not of a module.
    Elsewhere,
    /// Nothing, though the path begins in this crate.
    Nowhere,
}

impl Modules {
    /// Reads a crate from its root file on.
    pub(super) fn read(root: &str, source: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let mut modules = Self::default();
        modules.add_file(root, "", 0, source)?;
        Ok(modules)
    }

    /// The files that each file imports.
    pub(super) fn imports(&self) -> Result<Graph> {
        let mut graph: Graph = self.0.iter().map(|module| (module.file.clone(), BTreeSet::new())).collect();
        for (number, module) in self.0.iter().enumerate() {
            let imported = module.imports.values().chain(&module.globs);
            for path in module.paths.iter().chain(imported) {
                let target = match self.resolve(number, path, 0) {
                    Target::Item(target) => target,
                    Target::Module(target) if module.globs.contains(path) => target,
                    // The paths that begin with its name lead further.
                    Target::Module(_) | Target::Elsewhere => continue,
                    Target::Nowhere => bail!("{}: nothing is known of {}", module.file, path.join("::")),
                };
                if let Some(target) = self.0.get(target).filter(|target| target.file != module.file) {
                    graph.entry(module.file.clone()).or_default().insert(target.file.clone());
                }
            }
        }
        Ok(graph)
    }

    fn add_file(
        &mut self,
        file: &str,
        directory: &str,
        parent: usize,
        source: &dyn Fn(&str) -> Option<String>,
    ) -> Result<usize> {
        let text = source(file).with_context(|| format!("{file} cannot be read"))?;
        let stream = text.parse().map_err(|error| anyhow::anyhow!("{file}: {error}"))?;
        self.add(Module { file: file.to_owned(), parent, ..Module::default() }, &tokens(stream), directory, source)
    }

    fn add(
        &mut self,
        module: Module,
        body: &[Token],
        directory: &str,
        source: &dyn Fn(&str) -> Option<String>,
    ) -> Result<usize> {
        let number = self.0.len();
        let mut scan = Scan { module, inner: Vec::new() };
        scan.body(body, true);
        let Scan { module, inner } = scan;
        let file = module.file.clone();
        self.0.push(module);
        for (name, body) in inner {
            let child = match body {
                Some(body) => {
                    let module = Module { file: file.clone(), parent: number, ..Module::default() };
                    self.add(module, body, &format!("{directory}{name}/"), source)?
                }
                None => {
                    self.add_file(&format!("{directory}{name}.rs"), &format!("{directory}{name}/"), number, source)?
                }
            };
            if let Some(module) = self.0.get_mut(number) {
                module.children.insert(name.clone(), child);
            }
        }
        Ok(number)
    }

    /// Follows a path that is written in a module.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Target {
        let mut at = from;
        let mut rest = path;
        while let [first, after @ ..] = rest {
            let Some(module) = self.0.get(at) else { return Target::Nowhere };
            match first.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = module.parent,
                _ => break,
            }
            rest = after;
        }
        let is_ours = rest.len() < path.len();
        let target = self.look_up(at, rest, depth);
        if is_ours && matches!(target, Target::Elsewhere) { Target::Nowhere } else { target }
    }

    /// Follows a path of names from a module on.
    fn look_up(&self, at: usize, path: &[String], depth: usize) -> Target {
        let Some(module) = self.0.get(at) else { return Target::Elsewhere };
        let [name, rest @ ..] = path else { return Target::Module(at) };
        // A module and an item may have the same name; what follows a module's name is in it.
        if let Some(child) = module.children.get(name).filter(|_| !rest.is_empty() || !module.items.contains(name)) {
            let target = self.look_up(*child, rest, depth);
            return if matches!(target, Target::Elsewhere) { Target::Nowhere } else { target };
        }
        if module.items.contains(name) {
            return Target::Item(at);
        }
        // Names that stand for each other in a circle are of other crates: `use http::header; use header::VIA`.
        if depth > self.0.len() {
            return Target::Elsewhere;
        }
        if let Some(import) = module.imports.get(name) {
            return match import.as_slice() {
                [first, ..] if first == name && !module.children.contains_key(name) => Target::Elsewhere,
                _ => self.resolve(at, &[import.as_slice(), rest].concat(), depth + 1),
            };
        }
        let everything = module.globs.iter().filter_map(|glob| match self.resolve(at, glob, depth + 1) {
            Target::Module(target) => Some(target),
            Target::Item(_) | Target::Elsewhere | Target::Nowhere => None,
        });
        let mut found = everything.map(|target| self.look_up(target, path, depth + 1));
        found.find(|target| matches!(target, Target::Item(_) | Target::Module(_))).unwrap_or(Target::Elsewhere)
    }
}

/// The reading of one module.
struct Scan<'t> {
    module: Module,
    /// The modules in it, with their bodies if those are here.
    inner: Vec<(String, Option<&'t [Token]>)>,
}

impl<'t> Scan<'t> {
    /// Reads tokens; `top`: they are not inside of an item.
    fn body(&mut self, mut tokens: &'t [Token], top: bool) {
        // A word behind one of these is no beginning of a path.
        let mut is_behind = false;
        while let [first, rest @ ..] = tokens {
            tokens = match (first, rest) {
                (Word(public), [Group(Delimiter::Parenthesis, _), after @ ..]) if public == "pub" => after,
                (Word(word), [next, ..]) if word == "use" && *next != Sign('<') => self.import(rest),
                (Word(word), [Word(name), Sign(';'), after @ ..]) if word == "mod" => {
                    self.inner.push((name.clone(), None));
                    after
                }
                (Word(word), [Word(name), Group(Delimiter::Brace, body), after @ ..]) if word == "mod" => {
                    self.inner.push((name.clone(), Some(body)));
                    after
                }
                (Word(_), [Colons, ..]) if !is_behind => self.path(tokens),
                (Group(_, inner), _) => {
                    self.body(inner, false);
                    rest
                }
                (Word(word), _) if top && DEFINITIONS.contains(&word.as_str()) => self.definition(rest),
                _ => rest,
            };
            is_behind = matches!(first, Colons | Sign('.'));
        }
    }

    fn definition(&mut self, tokens: &'t [Token]) -> &'t [Token] {
        let mut names = tokens.iter().take_while(|token| matches!(token, Word(_) | Sign('!')));
        let name = names.find_map(|token| match token {
            Word(word) if !MODIFIERS.contains(&word.as_str()) => Some(word),
            Word(_) | Colons | Sign(_) | Group(..) => None,
        });
        self.module.items.extend(name.cloned());
        tokens
    }

    fn path(&mut self, mut tokens: &'t [Token]) -> &'t [Token] {
        let mut path = Path::new();
        while let [Word(word), rest @ ..] = tokens {
            path.push(word.clone());
            match rest {
                [Colons, after @ ..] => tokens = after,
                _ => {
                    tokens = rest;
                    break;
                }
            }
        }
        self.module.paths.push(path);
        tokens
    }

    /// Reads an import to its end.
    fn import(&mut self, tokens: &'t [Token]) -> &'t [Token] {
        let end = tokens.iter().position(|token| *token == Sign(';')).unwrap_or(tokens.len());
        let (import, rest) = tokens.split_at(end);
        self.tree(import, &[]);
        rest
    }

    fn tree(&mut self, tokens: &[Token], prefix: &[String]) {
        match tokens {
            [Word(word), Colons, rest @ ..] => self.tree(rest, &[prefix, std::slice::from_ref(word)].concat()),
            [Word(word)] if word == "self" => self.bring_in(prefix.last().cloned(), prefix.to_vec()),
            [Word(word)] => self.bring_in(Some(word.clone()), [prefix, std::slice::from_ref(word)].concat()),
            [Word(word), Word(_as), Word(name)] if word == "self" => self.bring_in(Some(name.clone()), prefix.to_vec()),
            [Word(word), Word(_as), Word(name)] => {
                self.bring_in(Some(name.clone()), [prefix, std::slice::from_ref(word)].concat());
            }
            [Sign('*')] => self.module.globs.push(prefix.to_vec()),
            [Group(_, trees)] => {
                for tree in trees.split(|token| *token == Sign(',')) {
                    self.tree(tree, prefix);
                }
            }
            // Of another crate for sure, or nothing.
            _ => {}
        }
    }

    fn bring_in(&mut self, name: Option<String>, path: Path) {
        match name.as_deref() {
            // `use Trait as _` names it all the same.
            Some("_") | None => self.module.paths.push(path),
            Some(_) => self.module.imports.extend(name.map(|name| (name, path))),
        }
    }
}
