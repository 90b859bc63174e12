//! Locks a mutex whose value stays valid when a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if another thread has panicked: one failed assertion must not hide others.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
