//! What keys do while `azekura top` is shown, and the terminal that tells of each as it is pressed.

use super::views::{Order, View};
use std::io::{self, IsTerminal, Read};
use std::time::Duration;

/// Pressed in the place of `q`, as the terminal does not make signals of them meanwhile.
const INTERRUPT: u8 = 3;
const ESCAPE: u8 = 27;
const BACKSPACE: [u8; 2] = [8, 127];

/// What is to be done after a key; the later ones include the earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    Nothing,
    /// Show what is known, arranged anew.
    Arrange,
    /// Others are to be asked: it is another view.
    Look,
    Quit,
}

/// What is chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    pub view: View,
    pub order: Order,
    /// Empty: everything.
    pub filter: String,
    /// The filter that is being typed.
    typed: Option<Vec<u8>>,
}

impl Choice {
    pub fn new(view: View, order: Order, filter: Option<&str>) -> Choice {
        Choice { view, order, filter: filter.unwrap_or_default().to_string(), typed: None }
    }

    /// Takes what was read at once: one key, or several. What is to be done is the most that one of them asks for.
    pub fn take(&mut self, bytes: &[u8]) -> Step {
        let mut step = Step::Nothing;
        for byte in bytes {
            // With what follows it one of the keys that have no letter; alone it ends what is typed.
            if *byte == ESCAPE {
                return if self.typed.take().is_some() { step.max(Step::Arrange) } else { step };
            }
            step = step.max(match *byte {
                INTERRUPT => Step::Quit,
                byte if self.typed.is_some() => self.take_typed(byte),
                byte => self.take_command(byte),
            });
        }
        step
    }

    fn take_typed(&mut self, byte: u8) -> Step {
        let Some(typed) = &mut self.typed else { return Step::Nothing };
        match byte {
            b'\r' | b'\n' => {
                self.filter = String::from_utf8_lossy(typed).into_owned();
                self.typed = None;
            }
            byte if BACKSPACE.contains(&byte) => {
                // A whole character.
                while typed.pop().is_some_and(|last| last & 0xc0 == 0x80) {}
            }
            byte if byte < b' ' => return Step::Nothing,
            byte => typed.push(byte),
        }
        Step::Arrange
    }

    fn take_command(&mut self, byte: u8) -> Step {
        match byte {
            b'q' | b'Q' => Step::Quit,
            b's' => {
                self.order = next(&Order::ALL, self.order);
                Step::Arrange
            }
            b'v' => {
                self.view = next(&View::ALL, self.view);
                Step::Look
            }
            b'/' | b'f' => {
                self.typed = Some(Vec::new());
                Step::Arrange
            }
            b'c' => {
                self.filter.clear();
                Step::Arrange
            }
            _ => Step::Nothing,
        }
    }

    /// The line that tells what is chosen, and which keys there are.
    pub fn line(&self) -> String {
        if let Some(typed) = &self.typed {
            return format!("only rows with: {}_  (Enter, Esc)", String::from_utf8_lossy(typed));
        }
        let filter = match self.filter.as_str() {
            "" => String::new(),
            text => format!(" with '{text}' (c: all)"),
        };
        let (view, order) = (name(self.view), name(self.order));
        format!("{view} by {order}{filter} | q quit  s sort  v view  / filter")
    }
}

/// The one after `now`, and after the last the first.
fn next<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let at = all.iter().position(|one| *one == now).unwrap_or(0);
    all[(at + 1) % all.len()]
}

fn name(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

/// The terminal's keyboard, each key by itself and not echoed; as it was before when this ends.
pub struct Keyboard(libc::termios);

impl Keyboard {
    /// `None` when the input is no terminal.
    pub fn open() -> Option<Keyboard> {
        if !io::stdin().is_terminal() {
            return None;
        }
        // SAFETY: all zeros is a value of this type of plain numbers.
        let mut before: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes one `termios`, and `before` is one.
        if unsafe { libc::tcgetattr(libc::STDIN_FILENO, &mut before) } != 0 {
            return None;
        }
        let mut raw = before;
        raw.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
        // SAFETY: the call reads one `termios`, and `raw` is one.
        let is_set = unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw) } == 0;
        is_set.then_some(Keyboard(before))
    }

    /// What is pressed within this time; nothing when it is over.
    pub fn wait(&self, time: Duration) -> io::Result<Vec<u8>> {
        let mut polled = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
        let time_ms = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one `pollfd` is given, and `polled` is one.
        let count = unsafe { libc::poll(&mut polled, 1, time_ms) };
        if count < 0 {
            let error = io::Error::last_os_error();
            // A window of another size, say.
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(Vec::new()),
                _ => Err(error),
            };
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = [0; 64];
        match io::stdin().lock().read(&mut bytes)? {
            // Nobody can press anything any more.
            0 => Ok(vec![b'q']),
            count => Ok(bytes[..count].to_vec()),
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // SAFETY: the call reads one `termios`, which is one that `tcgetattr` has given.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice() -> Choice {
        Choice::new(View::Targets, Order::Name, None)
    }

    #[test]
    fn sort_and_view_go_round() {
        let mut chosen = choice();
        for _ in 0..Order::ALL.len() {
            assert_eq!(chosen.take(b"s"), Step::Arrange);
        }
        assert_eq!(chosen, choice());
        chosen.take(b"s");
        assert_eq!(chosen.order, Order::Ops);
        for _ in 0..View::ALL.len() {
            assert_eq!(chosen.take(b"v"), Step::Look);
        }
        assert_eq!(chosen.view, View::Targets);
    }

    #[test]
    fn a_filter_is_typed_corrected_given_up_and_cleared() {
        let mut chosen = choice();
        // While it is typed other keys are letters.
        for keys in ["/", "qv", "ö", "\x7f", "\x7f", "s"] {
            assert_eq!(chosen.take(keys.as_bytes()), Step::Arrange);
            assert_eq!(chosen.filter, "");
        }
        assert!(chosen.line().contains("qs_"), "{}", chosen.line());
        chosen.take(b"\r");
        assert_eq!(chosen.filter, "qs");
        chosen.take(b"/");
        chosen.take(b"other\x1b");
        assert_eq!(chosen.filter, "qs");
        chosen.take(b"c");
        assert_eq!(chosen, choice());
    }

    #[test]
    fn quitting_works_always_and_arrows_do_nothing() {
        for keys in [&b"q"[..], &[INTERRUPT]] {
            assert_eq!(choice().take(keys), Step::Quit);
        }
        let mut chosen = choice();
        chosen.take(b"/");
        assert_eq!(chosen.take(&[INTERRUPT]), Step::Quit);
        assert_eq!(choice().take(b"\x1b[A"), Step::Nothing);
    }
}
