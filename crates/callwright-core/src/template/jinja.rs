//! Jinja2 and Python as chat templates expect them, on minijinja.
//!
//! A chat template was written for Jinja2 in Python, and each byte that it prints is part of a prompt. [`desugar`]
//! rewrites what minijinja does differently into calls of functions; [`environment`] has the functions, filters and
//! tests, and [`provided`] adds those that are minijinja's; [`methods`], [`operators`], [`sequences`], [`lists`],
//! [`format`] and [`python`] emulate Python; [`depth`] and [`budget`] limit a template's resources; [`failure`]
//! translates errors for the template's author.

pub(super) mod budget;
mod depth;
pub(super) mod desugar;
pub(super) mod environment;
pub(super) mod failure;
mod filters;
mod format;
mod lists;
mod methods;
mod operators;
mod provided;
pub(super) mod python;
mod sequences;
mod text_filters;
