//! Text to typed values and back, exactly (R-K8).
