//! What the dynamic linker calls when the library is loaded and when the process ends.

use crate::report::COUNTERS;
use crate::{call, real, state};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn start() {
    real::find_all();
    // A panic would be a mistake of ours; the program runs without coordination then.
    let _ = std::panic::catch_unwind(|| {
        call::prepare();
        state::load();
    });
}

extern "C" fn end() {
    if let Some(state) = state::get().filter(|state| state.settings.summary) {
        state.log.summary(&COUNTERS);
    }
}
