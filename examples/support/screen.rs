//! A table that stays below what is told; where nobody looks on, it is told along.

use std::fmt;
use std::io::{IsTerminal, Write};

use lease_core::{BootClock, Clock, Moment};

/// Where a program tells what happens, and shows how things stand.
pub struct Screen {
    out: Box<dyn Write + Send>,
    is_terminal: bool,
    /// How many lines the table has that is shown now.
    shown: usize,
    clock: BootClock,
    start: Moment,
}

impl Screen {
    /// Standard output, from now on.
    pub fn start() -> Self {
        let out = std::io::stdout();
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = out.is_terminal() && !is_dumb;
        Self::on(Box::new(out), is_terminal)
    }

    fn on(out: Box<dyn Write + Send>, is_terminal: bool) -> Self {
        let clock = BootClock::new();
        let start = clock.now();
        Self { out, is_terminal, shown: 0, clock, start }
    }

    /// Tells that `what` happened, and shows how things stand then.
    pub fn tell(&mut self, what: impl fmt::Display, table: &[String]) {
        let elapsed = self.clock.now().since(self.start).as_secs_f64();
        self.write(&format!("{elapsed:7.3} s  {what}\n"), table);
    }

    /// Shows how things stand, where somebody looks on.
    pub fn show(&mut self, table: &[String]) {
        if self.is_terminal {
            self.write("", table);
        }
    }

    /// Tells `line`, with nothing below it.
    pub fn end(&mut self, line: impl fmt::Display) {
        self.write(&format!("\n{line}\n"), &[]);
    }

    fn write(&mut self, told: &str, table: &[String]) {
        let mut text = String::new();
        if self.is_terminal && self.shown > 0 {
            text = format!("\x1b[{}F\x1b[J", self.shown);
        }
        text += told;
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
        self.shown = table.len();
        // Unlike with `print!`, nothing panics where the reader has gone, as `head` does.
        drop(self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()));
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("is_terminal", &self.is_terminal).finish_non_exhaustive()
    }
}

/// A line that is too long is cut: wrapped, it would be more lines than are taken back.
const NO_WRAP: &str = "\x1b[?7l";

const WRAP: &str = "\x1b[?7h";

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What is written where something is shown, told, and ended with.
    fn written(is_terminal: bool) -> String {
        let paper = Paper::default();
        let mut screen = Screen::on(Box::new(paper.clone()), is_terminal);
        screen.show(&["before".to_owned()]);
        screen.write("it happened\n", &["after".to_owned()]);
        screen.end("over");
        let written = paper.0.lock().unwrap().clone();
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn on_a_terminal_the_table_is_taken_back_first() {
        let before = "\x1b[?7lbefore\n\x1b[?7h";
        let after = "\x1b[1F\x1b[Jit happened\n\x1b[?7lafter\n\x1b[?7h";
        let over = "\x1b[1F\x1b[J\nover\n";

        assert_eq!(written(true), [before, after, over].concat());
    }

    #[test]
    fn elsewhere_it_is_told_along_without_control_characters() {
        assert_eq!(written(false), "it happened\nafter\n\nover\n");
    }
}
