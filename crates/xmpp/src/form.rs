//! Data forms (XEP-0004).

use crate::element::Element;
use crate::ns;
use crate::writer::Writer;
use std::borrow::Cow;

/// A form that came in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Form<'e> {
    /// `submit`, `cancel`, `form` or `result`; `submit` when the attribute is missing, as some clients do.
    pub kind: &'e str,
    /// The value of the hidden field `FORM_TYPE` (XEP-0068).
    pub form_type: Option<Cow<'e, str>>,
    /// The other fields that have a name.
    pub fields: Vec<Field<'e>>,
}

/// A field with what was filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field<'e> {
    /// Its name.
    pub var: &'e str,
    /// Its values; none stands for "not set".
    pub values: Vec<Cow<'e, str>>,
}

impl<'e> Form<'e> {
    /// The form among the children of `parent`.
    #[must_use]
    pub fn in_element(parent: &'e Element<'_>) -> Option<Self> {
        parent.child(ns::DATA_FORMS, "x").map(Self::of_element)
    }

    /// Reads `<x xmlns='jabber:x:data'/>`.
    #[must_use]
    pub fn of_element(x: &'e Element<'_>) -> Self {
        let mut form = Self { kind: x.attr("type").unwrap_or("submit"), ..Self::default() };
        for field in x.children_named(ns::DATA_FORMS, "field") {
            let values: Vec<_> = field.children_named(ns::DATA_FORMS, "value").map(Element::text).collect();
            match field.attr("var") {
                Some("FORM_TYPE") => form.form_type = values.into_iter().next(),
                Some(var) => form.fields.push(Field { var, values }),
                None => {}
            }
        }
        form
    }

    /// Whether the form was withdrawn.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.kind == "cancel"
    }
}

impl Field<'_> {
    /// The first value.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.values.first().map(AsRef::as_ref)
    }

    /// The value as a `boolean` (XEP-0004 §3.3).
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        match self.value()? {
            "1" | "true" => Some(true),
            "0" | "false" => Some(false),
            _ => None,
        }
    }
}

/// The type of a field that is written (XEP-0004 §3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// A field that is not shown.
    Hidden,
    /// Yes or no.
    Boolean,
    /// One line.
    TextSingle,
    /// Lines.
    TextMulti,
    /// One of the options.
    ListSingle,
    /// Some of the options.
    ListMulti,
    /// Addresses.
    JidMulti,
}

impl FieldType {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Boolean => "boolean",
            Self::TextSingle => "text-single",
            Self::TextMulti => "text-multi",
            Self::ListSingle => "list-single",
            Self::ListMulti => "list-multi",
            Self::JidMulti => "jid-multi",
        }
    }
}

/// Appends the start of a form and its `FORM_TYPE`.
pub fn open(w: &mut Writer<'_>, kind: &str, form_type: &str) {
    w.start_ns("x", ns::DATA_FORMS).attr("type", kind);
    field(w, "FORM_TYPE", FieldType::Hidden, None, &[form_type], &[]);
}

/// Appends a field with its values and the options it could have.
pub fn field(w: &mut Writer<'_>, var: &str, kind: FieldType, label: Option<&str>, values: &[&str], options: &[&str]) {
    w.start("field").attr("var", var).attr("type", kind.as_str()).attr_opt("label", label);
    for value in values {
        w.leaf("value", value);
    }
    for option in options {
        w.start("option").leaf("value", option).end("option");
    }
    w.end("field");
}

/// Appends the end of a form.
pub fn close(w: &mut Writer<'_>) {
    w.end("x");
}
