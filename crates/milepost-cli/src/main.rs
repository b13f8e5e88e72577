mod bench;
use clap::Parser;
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
#[derive(Parser)]
struct Cli { #[command(flatten)] args: bench::Args, #[arg(long)] store: Option<std::path::PathBuf> }
#[tokio::main]
async fn main() {
    let cli = Cli::parse();
    println!("{}", serde_json::to_string_pretty(&bench::run(&cli.args, cli.store).await.unwrap()).unwrap());
}
