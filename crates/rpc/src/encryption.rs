//! Which implementation of cryptography the process uses.

/// Chooses it once for the process; dependencies bring two, and rustls does not choose between them.
pub fn choose_provider() {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    // Whoever came first chose; it is the same or what the embedding program wants.
    let _ = provider.install_default();
}
