//! What the dynamic linker calls when the library is loaded and when the process ends.

use crate::report::COUNTERS;
use crate::{call, real, setup};

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
        setup::load();
    });
}

extern "C" fn end() {
    if let Some(setup) = setup::get().filter(|setup| setup.settings.summary) {
        setup.log.summary(&COUNTERS);
    }
}
