//! Sequences of events and stored rows side by side, compared without their values.
