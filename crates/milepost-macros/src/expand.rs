//! What is written in the place of the function.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericArgument, ItemFn, LitInt, LitStr, PathArguments, Result, ReturnType, Type};

/// What the attribute says.
#[derive(Default)]
struct Arguments {
    name: Option<String>,
    version: Option<u32>,
}

pub(crate) fn workflow(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let arguments = read(arguments)?;
    let mut function: ItemFn = syn::parse2(item)?;
    if function.sig.asyncness.is_none() {
        return Err(Error::new(function.sig.fn_token.span, "a workflow is an async fn"));
    }
    if !function.sig.generics.params.is_empty() {
        return Err(Error::new(function.sig.generics.span(), "a workflow has no type parameters: its log has none"));
    }
    let (call, input) = inputs(&function)?;
    let output = output(&function)?;
    let (visibility, ident) = (function.vis.clone(), function.sig.ident.clone());
    let name = arguments.name.unwrap_or_else(|| ident.to_string());
    let version = arguments.version.unwrap_or(1);
    // What is said of the function goes where people see it; what is done to it stays with its body.
    let (documentation, others): (Vec<_>, Vec<_>) =
        std::mem::take(&mut function.attrs).into_iter().partition(|attribute| attribute.path().is_ident("doc"));
    function.attrs = others;
    function.vis = syn::Visibility::Inherited;
    // The function's own name stands for the workflow, also inside it: a workflow may have itself as a child.
    function.sig.ident = syn::Ident::new("body", ident.span());
    // The type is inside, where it takes no name from anybody: `mod checkout` beside `fn checkout` is good Rust.
    Ok(quote! {
        #(#documentation)*
        #visibility fn #ident()
        -> impl ::milepost::TypedWorkflow<Input = #input, Output = #output> + ::std::marker::Copy + 'static {
            #[derive(Clone, Copy)]
            struct Function;

            impl ::milepost::Workflow for Function {
                fn reference(&self) -> ::milepost::WorkflowRef {
                    ::milepost::WorkflowRef { name: #name.into(), version: #version }
                }

                fn run(
                    &self,
                    mut context: ::milepost::Context,
                    input: ::std::sync::Arc<::milepost::private::Value>,
                ) -> ::milepost::private::BoxFuture<
                    'static,
                    ::std::result::Result<::milepost::private::Value, ::milepost::Failure>,
                > {
                    #function
                    ::std::boxed::Box::pin(async move {
                        let input: #input = ::milepost::private::input(&input)?;
                        ::milepost::private::output(#call.await)
                    })
                }
            }

            impl ::milepost::TypedWorkflow for Function {
                type Input = #input;
                type Output = #output;
            }

            Function
        }
    })
}

fn read(arguments: TokenStream) -> Result<Arguments> {
    let mut read = Arguments::default();
    let parser = syn::meta::parser(|meta| {
        if meta.path.is_ident("version") {
            read.version = Some(meta.value()?.parse::<LitInt>()?.base10_parse()?);
            return Ok(());
        }
        if meta.path.is_ident("name") {
            read.name = Some(meta.value()?.parse::<LitStr>()?.value());
            return Ok(());
        }
        Err(meta.error("a workflow has a `name` and a `version`, and nothing else"))
    });
    parser.parse2(arguments)?;
    Ok(read)
}

/// How the function is called, and what it takes.
fn inputs(function: &ItemFn) -> Result<(TokenStream, TokenStream)> {
    let mut arguments = function.sig.inputs.iter();
    let shape = "a workflow takes `ctx: &mut Context`, and one input or none";
    match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(FnArg::Typed(_)), None, None) => Ok((
            quote!({
                let () = input;
                body(&mut context)
            }),
            quote!(()),
        )),
        (Some(FnArg::Typed(_)), Some(FnArg::Typed(input)), None) => {
            let input = &input.ty;
            Ok((quote!(body(&mut context, input)), quote!(#input)))
        }
        _ => Err(Error::new(function.sig.inputs.span(), shape)),
    }
}

/// The first type inside what it returns.
fn output(function: &ItemFn) -> Result<TokenStream> {
    let wanted = || Error::new(function.sig.output.span(), "a workflow returns `Result<T, Failure>`");
    let ReturnType::Type(_, returned) = &function.sig.output else {
        return Err(Error::new(function.sig.ident.span(), "a workflow returns `Result<T, Failure>`"));
    };
    let Type::Path(path) = &**returned else { return Err(wanted()) };
    let last = path.path.segments.last().ok_or_else(wanted)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Err(wanted()) };
    match arguments.args.first() {
        Some(GenericArgument::Type(output)) => Ok(quote!(#output)),
        _ => Err(wanted()),
    }
}
