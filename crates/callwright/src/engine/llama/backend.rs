//! llama.cpp itself: its start, its messages, and what it can use of this machine.

use crate::engine::Device;
use crate::{Error, ErrorKind, Result};
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::{LlamaBackendDeviceType, list_llama_ggml_backend_devices};
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
#[cfg(feature = "portable")]
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Starts llama.cpp, once.
///
/// # Errors
/// [`ErrorKind::Engine`] with its message.
pub(super) fn backend() -> Result<&'static LlamaBackend> {
    static BACKEND: OnceLock<std::result::Result<LlamaBackend, String>> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| {
        // SAFETY: the callback is a static function that is safe to call from any thread.
        unsafe { sys::llama_log_set(Some(log), std::ptr::null_mut()) };
        #[cfg(feature = "portable")]
        load_cpu_backends();
        LlamaBackend::init().map_err(|error| error.to_string())
    });
    backend.as_ref().map_err(|error| Error::new(ErrorKind::Engine, format!("llama.cpp does not start: {error}")))
}

/// The GPUs that llama.cpp has found in a build with a backend for them, each with its backend and its memory in bytes.
pub fn gpu_devices() -> Vec<Device> {
    if backend().is_err() {
        return Vec::new();
    }
    let is_gpu = |kind| matches!(kind, LlamaBackendDeviceType::Gpu | LlamaBackendDeviceType::IntegratedGpu);
    let found = list_llama_ggml_backend_devices().into_iter().filter(|device| is_gpu(device.device_type));
    found
        .map(|device| Device {
            name: device.name,
            description: device.description,
            total: device.memory_total as u64,
            free: device.memory_free as u64,
        })
        .collect()
}

/// The CPU features that llama.cpp was compiled to use, by its names: `AVX2`, `AMX_INT8` and so on.
pub fn cpu_features() -> Vec<String> {
    if backend().is_err() {
        return Vec::new();
    }
    // SAFETY: returns a pointer to a static string that the next call overwrites; it is copied at once, and the
    // backends that it queries are loaded.
    let text = unsafe { CStr::from_ptr(sys::llama_print_system_info()) }.to_string_lossy();
    // One section per backend: `CPU : SSE3 = 1 | AVX2 = 1 | `.
    let cpu = text.split("CPU : ").nth(1).unwrap_or_default();
    let features = cpu.split('|').filter_map(|feature| feature.trim().strip_suffix(" = 1"));
    features.map(str::to_owned).collect()
}

/// Returns whether this build of llama.cpp can keep layers on a GPU.
pub fn has_gpu() -> bool {
    backend().is_ok_and(LlamaBackend::supports_gpu_offload)
}

static LEAVING: AtomicBool = AtomicBool::new(false);

/// From now on contexts and their models are not freed, because the process ends: the system takes their memory back in less time than
/// llama.cpp frees it. In a build for a GPU they are freed, because its driver may delay the end of the process otherwise.
pub fn leave() {
    LEAVING.store(true, Ordering::Relaxed);
}

/// Returns whether a context is left to the system. It is asked only where there is a context: `has_gpu` would start
/// llama.cpp for a run that needs none.
pub(super) fn is_left() -> bool {
    LEAVING.load(Ordering::Relaxed) && !has_gpu()
}

/// Returns what to do about a build that does not use this CPU's vector units, such as a generic build; `None` if it
/// uses them.
pub fn slow_build_notice() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    {
        let compiled = cpu_features();
        let units = [
            ("AVX2", std::is_x86_feature_detected!("avx2")),
            ("AVX512", std::is_x86_feature_detected!("avx512f")),
            ("AVX512_VNNI", std::is_x86_feature_detected!("avx512vnni")),
        ];
        let unused: Vec<&str> = units
            .into_iter()
            .filter(|(name, there)| *there && !compiled.iter().any(|feature| feature == name))
            .map(|(name, _)| name)
            .collect();
        if !unused.is_empty() {
            // clang, because GCC 12 miscompiles AMX, which a native build would use.
            return Some(format!(
                "this build of llama.cpp does not use all vector units of the CPU ({} are left) and is slower than it \
                 could be; build it for this machine: `make install` in the repository, or CC=clang CXX=clang++ \
                 RUSTFLAGS=\"-C target-cpu=native\" cargo install callwright --force",
                unused.join(", ")
            ));
        }
    }
    None
}

/// Loads the backend library for this CPU: from the program's folder, where `make portable` puts all of them, or from
/// the build folder.
#[cfg(feature = "portable")]
fn load_cpu_backends() {
    use llama_cpp_2::llama_backend::{load_backends, load_backends_from_path};
    let program_folder = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned));
    let holds_backends = |folder: &Path| {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.into_iter().any(|name| name.to_string_lossy().contains("ggml-cpu-"))
    };
    match program_folder.filter(|folder| folder.to_str().is_some() && holds_backends(folder)) {
        Some(folder) => load_backends_from_path(&folder),
        None => load_backends(),
    }
}

/// Ends the process at once. The destructors of C++, which `std::process::exit` runs, may wait for threads that compute.
pub fn exit_now(status: i32) -> ! {
    #[cfg(unix)]
    // SAFETY: it ends the process, and runs none of its code.
    unsafe {
        nix::libc::_exit(status)
    }
    #[cfg(not(unix))]
    std::process::exit(status)
}

/// Makes a failure that ends llama.cpp, such as memory that it does not get, an error of the program. By itself it starts a debugger to
/// print where it was, and ends with a signal. To be called before there is a second thread.
pub fn report_failures() {
    // SAFETY: there is one thread.
    unsafe { std::env::set_var("GGML_NO_BACKTRACE", "1") };
    // SAFETY: the callback is a static function, which does not return.
    unsafe { ggml_set_abort_callback(Some(failed)) };
    #[cfg(unix)]
    // SAFETY: as above.
    unsafe {
        set_terminate(uncaught)
    };
}

unsafe extern "C" {
    /// Sets what is called before ggml ends the process.
    fn ggml_set_abort_callback(callback: Option<unsafe extern "C" fn(*const c_char)>) -> *const c_void;
    /// `std::set_terminate` of C++: what an exception ends in that nobody catches.
    #[cfg(unix)]
    #[link_name = "_ZSt13set_terminatePFvvE"]
    fn set_terminate(callback: extern "C" fn()) -> *const c_void;
}

unsafe extern "C" fn failed(text: *const c_char) {
    // SAFETY: llama.cpp passes a NUL-terminated string that lives for the call.
    let text = if text.is_null() { "".into() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy() };
    end_with(&text)
}

#[cfg(unix)]
extern "C" fn uncaught() {
    end_with("an exception, most likely because there was not enough memory")
}

/// Ends the process, because llama.cpp cannot go on.
fn end_with(why: &str) -> ! {
    let before = COMPLAINTS.try_lock().map(|text| text.clone()).unwrap_or_default();
    let before = if before.is_empty() { before } else { format!("{before}; ") };
    let hint = "a smaller context, fewer requests at a time or a smaller model needs less memory";
    let _ = writeln!(std::io::stderr(), "error: llama.cpp cannot go on: {before}{why}\nhint: {hint}");
    crate::groups::kill_running();
    exit_now(1)
}

static COMPLAINTS: Mutex<String> = Mutex::new(String::new());
/// Characters of messages to keep. The first message is the cause; the later ones come from its callers.
const COMPLAINTS_KEPT: usize = 400;

/// llama.cpp returns null or a number and logs the reason: keep it for the error message.
unsafe extern "C" fn log(level: sys::ggml_log_level, text: *const c_char, _: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated string that lives for the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let text = text.trim_end();
    if level == sys::GGML_LOG_LEVEL_ERROR {
        let mut complaints = COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.len() + text.len() < COMPLAINTS_KEPT {
            if !complaints.is_empty() {
                complaints.push_str("; ");
            }
            complaints.push_str(text);
        }
    }
    tracing::debug!(target: "llama.cpp", "{text}");
}

/// llama.cpp's messages since the last call, or `otherwise` if there are none.
pub(super) fn because(otherwise: &str) -> String {
    let complaints = std::mem::take(&mut *COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner));
    if complaints.is_empty() { otherwise.to_owned() } else { complaints }
}
