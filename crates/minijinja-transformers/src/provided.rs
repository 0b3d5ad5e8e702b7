//! Jinja2's filters, tests and functions as minijinja has them.
//!
//! `Environment::new` would add all of minijinja's. Most of those are replaced here, some Jinja2 does not have, and nothing
//! leaves them out of a program again: they are 60 kB of a WebAssembly module.

use minijinja::{Environment, filters, tests};

pub(crate) fn register(env: &mut Environment<'_>) {
    env.add_filter("abs", filters::abs);
    env.add_filter("last", filters::last);
    env.add_test("undefined", tests::is_undefined);
    env.add_test("defined", tests::is_defined);
    env.add_test("none", tests::is_none);
    env.add_test("boolean", tests::is_boolean);
    env.add_test("true", tests::is_true);
    env.add_test("false", tests::is_false);
    env.add_test("odd", tests::is_odd);
    env.add_test("even", tests::is_even);
    env.add_test("divisibleby", tests::is_divisibleby);
    env.add_test("float", tests::is_float);
    env.add_test("string", tests::is_string);
    env.add_test("mapping", tests::is_mapping);
    env.add_test("lower", tests::is_lower);
    env.add_test("upper", tests::is_upper);
    env.add_test("sameas", tests::is_sameas);
    env.add_test("in", tests::is_in);
    env.add_test("filter", tests::is_filter);
    env.add_test("test", tests::is_test);
    env.add_test("escaped", tests::is_safe);
    for name in ["integer", "int"] {
        env.add_test(name, tests::is_integer);
    }
    for name in ["eq", "equalto", "=="] {
        env.add_test(name, tests::is_eq);
    }
    for name in ["ne", "!="] {
        env.add_test(name, tests::is_ne);
    }
    for name in ["lt", "lessthan", "<"] {
        env.add_test(name, tests::is_lt);
    }
    for name in ["le", "<="] {
        env.add_test(name, tests::is_le);
    }
    for name in ["gt", "greaterthan", ">"] {
        env.add_test(name, tests::is_gt);
    }
    for name in ["ge", ">="] {
        env.add_test(name, tests::is_ge);
    }
}
