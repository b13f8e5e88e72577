//! `#[milepost::workflow]`: an async fn becomes something that a node can run, under the same name.

mod expand;

use proc_macro::TokenStream;

/// Makes a workflow of `async fn name(ctx: &mut Context, input: T) -> Result<R, Failure>`.
///
/// The name stands for the workflow from then on: to register it, to run it, to have it as a child. Runs keep to the version that they began with:
/// `#[workflow(version = 2)]` leaves those of version 1 to a function that still says 1, under the same
/// `name = "..."`.
#[proc_macro_attribute]
pub fn workflow(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::workflow(arguments.into(), item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}
