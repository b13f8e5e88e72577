//! What the bare store gives.
