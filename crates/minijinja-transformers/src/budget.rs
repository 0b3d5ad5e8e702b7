//! Resource limits of one rendering, and its context other than variables.
//!
//! Templates are untrusted. minijinja counts instructions, but not text that grows inside one instruction or a capture,
//! so everything that creates text checks the budget first.

use crate::error;
use crate::sequences::Range;
use crate::template::RenderOptions;
use minijinja::value::{Object, Value, ValueIter, ValueKind};
use minijinja::{Error, ErrorKind, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The variable that holds a rendering's [`Scope`]; templates have no reason to use it.
pub(crate) const SCOPE: &str = "__callwright";

/// Maximum size of a value or the output in bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    levels: usize,
    captured: AtomicUsize,
    nested: AtomicUsize,
    copied: AtomicUsize,
    began: Duration,
    ticks: AtomicUsize,
    late: AtomicBool,
    /// Whether something contains a namespace, which alone can be made to contain itself.
    holds_namespace: AtomicBool,
}

/// Processor time of one rendering. Counting stops most endless templates; this stops those with expensive steps.
const PATIENCE: Duration = Duration::from_millis(900);

/// The clock is read only every this many checks.
const LOOK: usize = 8;

/// Maximum bytes that one rendering may copy from text and lists that it extends.
const COPIED: usize = 512 << 20;

/// Maximum levels that one rendering may wrap around values in total; dropping them must fit a 2 MiB stack.
const NESTING: usize = 1000;

impl Budget {
    /// `items`: the number of messages and tools, each of which a template may put into a list a few times.
    pub(crate) fn new(limit: usize, items: usize) -> Budget {
        Budget {
            limit,
            levels: NESTING + 4 * items,
            captured: AtomicUsize::new(0),
            nested: AtomicUsize::new(0),
            copied: AtomicUsize::new(0),
            began: processor_time(),
            ticks: AtomicUsize::new(0),
            late: AtomicBool::new(false),
            holds_namespace: AtomicBool::new(false),
        }
    }

    /// Whether the rendering has exceeded its time; from then on it only fails.
    pub(crate) fn is_late(&self) -> bool {
        let look = self.ticks.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK);
        if look && processor_time().saturating_sub(self.began) > PATIENCE {
            self.late.store(true, Ordering::Relaxed);
        }
        self.late.load(Ordering::Relaxed)
    }

    /// Fails if the rendering has exceeded its time; for each of many values that one step goes through.
    pub(crate) fn on_time(&self) -> Result<(), Error> {
        let look = self.ticks.fetch_add(1, Ordering::Relaxed).is_multiple_of(8 * LOOK);
        let late = if look { self.is_late() } else { self.late.load(Ordering::Relaxed) };
        if late { Err(too_late()) } else { Ok(()) }
    }

    /// Counts the values in a list or dict that the template makes of others. They may share their parts, so that a
    /// short template makes more than anything can go through: minijinja compares and hashes them in one step.
    pub(crate) fn weigh(&self, value: &Value) -> Result<usize, Error> {
        let mut counting = Counting { left: VALUES, other: None, namespace: false };
        counting.count(value, 0)?;
        self.holds_namespace.fetch_or(counting.namespace, Ordering::Relaxed);
        Ok(VALUES - counting.left)
    }

    /// The same for two lists that become one. What is added to a long one is alone counted: a loop may do that often.
    pub(crate) fn weigh_sum(&self, left: &Value, right: &Value) -> Result<(), Error> {
        let length = |list: &Value| list.len().unwrap_or(0);
        let (short, long) = if length(left) < length(right) { (left, right) } else { (right, left) };
        let weight = self.weigh(short)?;
        if length(short) > FEW && weight + self.weigh(long)? > VALUES {
            return Err(too_many());
        }
        Ok(())
    }

    /// The same for a list that is repeated.
    pub(crate) fn weigh_product(&self, value: &Value, count: usize) -> Result<(), Error> {
        if self.weigh(value)?.saturating_mul(count) > MOST { Err(too_many()) } else { Ok(()) }
    }

    /// Fails if `namespace` would contain itself with `value` as a member: comparing it would never end.
    pub(crate) fn member(&self, namespace: &Value, value: &Value) -> Result<(), Error> {
        if is_namespace(value) || self.holds_namespace.load(Ordering::Relaxed) {
            Counting { left: VALUES, other: Some(namespace), namespace: false }.count(value, 0)?;
            self.holds_namespace.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The error of a rendering that exceeded its time, whatever its result.
    pub(crate) fn lateness(&self) -> Option<Error> {
        self.late.load(Ordering::Relaxed).then(too_late)
    }

    /// Fails if a single text is longer than a whole prompt may be.
    pub(crate) fn check(&self, length: usize) -> Result<(), Error> {
        if length > self.limit { Err(self.exceeded()) } else { Ok(()) }
    }

    /// Counts `length` bytes of created text, whether or not they reach the output.
    pub(crate) fn spend(&self, length: usize) -> Result<(), Error> {
        let before = self.captured.fetch_add(length, Ordering::Relaxed);
        // Text may pass through a few macros before it reaches the output.
        if before.saturating_add(length) > self.limit.saturating_mul(4) { Err(self.exceeded()) } else { Ok(()) }
    }

    /// Counts bytes that were copied into a longer value.
    pub(crate) fn copy(&self, length: usize) -> Result<(), Error> {
        if self.copied.fetch_add(length, Ordering::Relaxed) < COPIED {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidOperation, error::COPIES))
    }

    /// Counts levels wrapped around a value.
    pub(crate) fn nest(&self, levels: usize) -> Result<(), Error> {
        if self.nested.fetch_add(levels, Ordering::Relaxed) < self.levels {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidOperation, error::NESTING))
    }

    fn exceeded(&self) -> Error {
        Error::new(ErrorKind::WriteFailure, "").with_source(TooLong { limit: self.limit })
    }
}

/// Maximum number of values in one that the template makes, with those that it shares counted each time.
const VALUES: usize = 1_000_000;
/// The same for a list that is repeated.
const MOST: usize = 10 * VALUES;
/// Lists of at most this length are short.
const FEW: usize = 64;
/// Maximum nesting of such a value.
const DEPTH: usize = 300;

/// Goes through a value and all values in it.
struct Counting<'v> {
    /// Number of values left to go through.
    left: usize,
    /// What must not be among them.
    other: Option<&'v Value>,
    /// Whether a namespace is among them.
    namespace: bool,
}

impl Counting<'_> {
    fn count(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(1).ok_or_else(too_many)?;
        let Some(object) = value.as_object() else { return Ok(()) };
        if depth > DEPTH || self.other.is_some_and(|other| minijinja::tests::is_sameas(other, value)) {
            return Err(Error::new(ErrorKind::InvalidOperation, error::NESTING));
        }
        match value.kind() {
            ValueKind::Map => {
                self.namespace |= is_namespace(value);
                for (key, item) in object.try_iter_pairs().into_iter().flatten() {
                    self.count(&key, depth + 1)?;
                    self.count(&item, depth + 1)?;
                }
            }
            // A range has only numbers, and any number of them.
            ValueKind::Seq | ValueKind::Iterable if value.downcast_object_ref::<Range>().is_none() => {
                for item in object.try_iter().into_iter().flatten() {
                    self.count(&item, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn too_many() -> Error {
    Error::new(ErrorKind::InvalidOperation, error::VALUES)
}

fn too_late() -> Error {
    Error::new(ErrorKind::InvalidOperation, error::TIME)
}

/// Marks an error of the output limit.
#[derive(Debug)]
pub(crate) struct TooLong {
    pub limit: usize,
}

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "more than {} bytes of text", self.limit)
    }
}

impl std::error::Error for TooLong {}

/// Returns the processor time of this thread, which bounds a rendering: wall-clock time would fail good templates on a busy
/// machine. Where there is none it is the wall-clock time, and always zero in WebAssembly outside WASI.
#[cfg(unix)]
pub fn processor_time() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Returns the time since the first call.
#[cfg(not(any(unix, all(target_family = "wasm", target_os = "unknown"))))]
pub fn processor_time() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}

/// WebAssembly alone has no clock: only the number of steps bounds a template.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub fn processor_time() -> Duration {
    Duration::ZERO
}

/// What filters and functions of one rendering share.
#[derive(Debug)]
pub(crate) struct Scope {
    pub budget: Budget,
    pub options: RenderOptions,
}

impl Object for Scope {}

/// The scope of the current rendering, if it has not exceeded its time.
pub(crate) fn scope(state: &State) -> Result<Arc<Scope>, Error> {
    let scope = state
        .lookup(SCOPE)
        .as_ref()
        .and_then(Value::downcast_object::<Scope>)
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("the template overwrites {SCOPE}")))?;
    if scope.budget.is_late() {
        return Err(too_late());
    }
    Ok(scope)
}

/// The items of a value, which end if the rendering exceeds its time. Consumers of many items cannot fail themselves,
/// so the rendering fails at the end.
pub(crate) fn timely(state: &State, value: Value) -> Result<Value, Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::String) {
        return Ok(value);
    }
    let (scope, text) = (scope(state)?, value.kind() == ValueKind::String);
    Ok(Value::make_iterable(move || Timely { items: value.try_iter().ok(), text, scope: Arc::clone(&scope) }))
}

struct Timely {
    items: Option<ValueIter>,
    text: bool,
    scope: Arc<Scope>,
}

impl Iterator for Timely {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        if self.scope.budget.is_late() {
            return None;
        }
        self.items.as_mut()?.next()
    }

    // Loops use this for their length.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.items.as_ref().map_or((0, Some(0)), Iterator::size_hint);
        // minijinja counts the characters of a text, but reports the count as an upper bound.
        if self.text { (most.unwrap_or(least), most) } else { (least, most) }
    }
}
