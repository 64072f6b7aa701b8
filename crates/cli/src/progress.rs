//! A spinner on standard error while long work runs.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::context::Context;

/// Shows that something runs until it is dropped; nothing where standard error is no terminal.
#[derive(Debug)]
pub(crate) struct Spinner {
    bar: Option<ProgressBar>,
}

impl Spinner {
    pub(crate) fn start(context: &Context, what: String) -> Self {
        if !context.shows_progress() {
            return Self { bar: None };
        }
        let bar = ProgressBar::new_spinner().with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar: Some(bar) }
    }
}

impl Spinner {
    /// Says what goes on.
    pub(crate) fn tell(&self, what: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(what);
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
