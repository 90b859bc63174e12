//! Prints events, with a table of the current state below. A terminal redraws the table in place.
//! Other outputs get the table after each event.

use std::fmt;
use std::io::{IsTerminal, Write};

use lease_core::store::{BootClock, Clock, Moment};

/// Prints events and the current state.
pub struct Screen {
    out: Box<dyn Write + Send>,
    is_terminal: bool,
    table_lines: usize,
    clock: BootClock,
    start: Moment,
}

impl Screen {
    /// Creates a screen on standard output. Its time starts now.
    pub fn start() -> Self {
        let out = std::io::stdout();
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = out.is_terminal() && !is_dumb;
        Self::on(Box::new(out), is_terminal)
    }

    fn on(out: Box<dyn Write + Send>, is_terminal: bool) -> Self {
        let clock = BootClock::new();
        let start = clock.now();
        Self { out, is_terminal, table_lines: 0, clock, start }
    }

    /// Prints `event` with its time, and the table after it.
    pub fn print(&mut self, event: impl fmt::Display, table: &[String]) {
        let elapsed = self.clock.now().since(self.start).as_secs_f64();
        self.write(&format!("{elapsed:7.3} s  {event}\n"), table);
    }

    /// Redraws the table. Does nothing if the output is not a terminal.
    pub fn redraw(&mut self, table: &[String]) {
        if self.is_terminal {
            self.write("", table);
        }
    }

    /// Prints `line`, without a table below it.
    pub fn end(&mut self, line: impl fmt::Display) {
        self.write(&format!("\n{line}\n"), &[]);
    }

    fn write(&mut self, event: &str, table: &[String]) {
        let mut text = String::new();
        if self.is_terminal && self.table_lines > 0 {
            text = format!("\x1b[{}F\x1b[J", self.table_lines);
        }
        text += event;
        if self.is_terminal && !table.is_empty() {
            text += NO_WRAP;
        }
        for line in table {
            text += line;
            text += "\n";
        }
        if self.is_terminal && !table.is_empty() {
            text += WRAP;
        }
        self.table_lines = table.len();
        // `print!` would panic if the reader has closed the pipe, as `head` does.
        drop(self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()));
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("is_terminal", &self.is_terminal).finish_non_exhaustive()
    }
}

/// Cuts long lines. A wrapped line would take more lines than `table_lines` counts.
const NO_WRAP: &str = "\x1b[?7l";

const WRAP: &str = "\x1b[?7h";

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn written(is_terminal: bool) -> String {
        let buffer = Buffer::default();
        let mut screen = Screen::on(Box::new(buffer.clone()), is_terminal);
        screen.redraw(&["before".to_owned()]);
        screen.write("it happened\n", &["after".to_owned()]);
        screen.end("over");
        let written = buffer.0.lock().unwrap().clone();
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn terminal_shows_event_in_place_of_table() {
        let before = "\x1b[?7lbefore\n\x1b[?7h";
        let after = "\x1b[1F\x1b[Jit happened\n\x1b[?7lafter\n\x1b[?7h";
        let over = "\x1b[1F\x1b[J\nover\n";

        assert_eq!(written(true), [before, after, over].concat());
    }

    #[test]
    fn pipe_gets_no_control_characters() {
        assert_eq!(written(false), "it happened\nafter\n\nover\n");
    }
}
