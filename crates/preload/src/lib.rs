//! What preload libraries are made of: functions that stand in for the C library's ([`hook!`]), the
//! functions behind them ([`real!`]), and for tests the running of programs with a library loaded
//! ([`harness`]). Knows nothing of what a library does with the calls.
//!
//! While a function behind runs, no value on the stack of the one that stands in for it may need
//! dropping: a thread may be cancelled there, and the C library unwinds it.

pub mod errno;
pub mod harness;
mod next;

pub use next::{Missing, Next, missing};

/// Defines functions that stand in for those of these names: forms of one function that are the
/// same on this machine.
///
/// The body may do with its arguments what that function does, and is unsafe code.
#[macro_export]
macro_rules! hook {
    ([$($name:ident)*] $arguments:tt -> $result:ty $body:block) => {
        $($crate::hook!(@one $name $arguments -> $result $body);)*
    };
    (@one $name:ident ($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block) => {
        #[doc = concat!("Stands in for `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for the function it stands in for.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller promises what the C library's function demands; the body does
            // no more with its arguments than that function does.
            unsafe { $body }
        }
    };
}

/// Defines functions that call those of the same name behind ours, and `find_all`, which finds them
/// all.
///
/// A call before `find_all` (another library's start-up code) looks its own function up. A function
/// that this C library does not have fails as [`missing`] says.
#[macro_export]
macro_rules! real {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        mod at {
            $(pub static $name: $crate::Next = $crate::Next::new(
                match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes()
                ) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            );)*
        }

        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the C library's.
            #[inline]
            #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
            pub unsafe fn $name($($arg: $type),*) $(-> $result)? {
                type Form = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
                // SAFETY: the function of this name has this form.
                let Some(function) = (unsafe { at::$name.find::<Form>() }) else {
                    return $crate::missing();
                };
                // SAFETY: the caller's promise.
                unsafe { function($($arg),*) }
            }
        )*

        /// Finds all functions. Called once, when the library is loaded.
        pub fn find_all() {
            $(at::$name.look();)*
        }
    };
}
