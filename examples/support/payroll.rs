//! The work of `singleton_job`: a list of payments, and a ledger of the payments made.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use lease_core::{FencingToken, InvalidInput};

/// A payment to one employee.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Payment {
    /// The employee's name.
    pub employee: String,
    /// The amount, in cents.
    pub cents: u64,
}

/// Reads payments from `file`, or the built-in payroll if `file` is `None`.
///
/// # Errors
///
/// Fails if `file` cannot be read, has no payments, or has a line that is not a payment.
pub fn read(file: Option<&Path>) -> Result<Vec<Payment>, InvalidInput> {
    let Some(file) = file else {
        // Compiled in, so that the example runs from any folder.
        return parse("payroll.csv", include_str!("../data/payroll.csv"));
    };
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| InvalidInput::new(format!("{name} cannot be read: {error}")))?;
    parse(&name.to_string(), &text)
}

fn parse(file: &str, text: &str) -> Result<Vec<Payment>, InvalidInput> {
    let mut payments = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || (number == 1 && line == HEADER) {
            continue;
        }
        let payment = Payment::parse(line).ok_or_else(|| {
            InvalidInput::new(format!(
                "{file}, line {number}: {line:?} is not a payment: \
                 a payment is an employee, a comma, and an amount such as 4815.00"
            ))
        })?;
        payments.push(payment);
    }
    if payments.is_empty() {
        return Err(InvalidInput::new(format!("{file} has no payments")));
    }
    Ok(payments)
}

impl Payment {
    fn parse(line: &str) -> Option<Self> {
        let (employee, amount) = line.rsplit_once(',')?;
        let (employee, amount) = (employee.trim(), amount.trim());
        let (whole, part) = amount.split_once('.').unwrap_or((amount, "00"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if employee.is_empty() || part.len() != 2 || !digits(whole) || !digits(part) {
            return None;
        }
        let (whole, part): (u64, u64) = (whole.parse().ok()?, part.parse().ok()?);
        Some(Self {
            employee: employee.to_owned(),
            cents: whole.checked_mul(100)?.checked_add(part)?,
        })
    }
}

impl fmt::Display for Payment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.cents / 100, self.cents % 100);
        write!(f, "{:<18} {whole:>6}.{part:02}", self.employee)
    }
}

/// The payments made so far. A [`Gate`](lease_core::fence::Gate) guards the ledger.
#[derive(Debug, Default)]
pub struct Ledger {
    accepted: Vec<(usize, FencingToken)>,
}

impl Ledger {
    /// Returns the number of the first payment that is not made yet.
    pub fn next(&self) -> usize {
        self.accepted.last().map_or(0, |(last, _)| last + 1)
    }

    /// Records that `payment` was made under `token`.
    pub fn accept(&mut self, payment: usize, token: FencingToken) {
        self.accepted.push((payment, token));
    }

    /// Returns the number of payments made under each token.
    pub fn shares(&self) -> BTreeMap<FencingToken, usize> {
        let mut shares = BTreeMap::new();
        for (_, token) in &self.accepted {
            *shares.entry(*token).or_default() += 1;
        }
        shares
    }

    /// Returns which of the first `count` payments were not made exactly once.
    pub fn wrong(&self, count: usize) -> Vec<usize> {
        let times = |payment| self.accepted.iter().filter(|(p, _)| *p == payment).count();
        (0..count).filter(|payment| times(*payment) != 1).collect()
    }
}

const HEADER: &str = "employee,amount";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_payroll_is_read() {
        let payments = read(None).unwrap();

        assert_eq!(payments.len(), 24);
        assert_eq!(payments[0].employee, "Ada Lovelace");
        assert_eq!(payments[0].cents, 481_500);
    }

    #[test]
    fn bad_line_is_refused_with_its_number() {
        let refused = |text: &str| parse("pay.csv", text).unwrap_err().to_string();

        for bad in ["Ada", "Ada,", ",1.00", "Ada,-1", "Ada,1.5", "Ada,1e3", "Ada,+1.00"] {
            let text = format!("{HEADER}\r\n\r\nAlan,1.00\r\n{bad}\r\n");
            let start = format!("pay.csv, line 4: {bad:?} is not a payment: ");
            assert!(refused(&text).starts_with(&start), "{bad}");
        }
        assert!(refused("Ada,99999999999999999999").starts_with("pay.csv, line 1: "));
        assert_eq!(refused(""), "pay.csv has no payments");
        assert_eq!(refused(HEADER), "pay.csv has no payments");
    }

    #[test]
    fn payment_made_twice_or_never_is_found() {
        let token = FencingToken::new(1).unwrap();
        let mut ledger = Ledger::default();
        for payment in [0, 1, 1, 3] {
            ledger.accept(payment, token);
        }

        assert_eq!(ledger.wrong(4), [1, 2]);
        assert_eq!(ledger.next(), 4);
    }
}
