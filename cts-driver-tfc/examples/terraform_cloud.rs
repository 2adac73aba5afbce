//! A Terraform Cloud of its own process, for tests in any language.
//!
//! ```console
//! $ cargo run -p cts-driver-tfc --features testing --example terraform_cloud -- terraform
//! export TF_CLI_CONFIG_FILE='/tmp/…/terraform.tfrc'
//! …
//! ```
//!
//! The argument is the program that runs what is uploaded: `terraform` or `tofu`, by name or by
//! path; without one, runs are made up. It ends, and its data with it, when its input ends or
//! Ctrl-C is pressed.

#![expect(clippy::print_stdout, reason = "a shell reads what it prints")]

use std::error::Error;

use cts_driver_tfc::testing::TestTfc;
use tokio::io::AsyncReadExt as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut builder = TestTfc::builder();
    if let Some(program) = std::env::args_os().nth(1) {
        builder = builder.tool(program);
    }
    let served = builder.build().serve_tls().await?;
    let folder = tempfile::tempdir()?;
    for (name, value) in served.terraform_environment(folder.path())? {
        println!("export {name}='{}'", value.display());
    }
    println!("export TFC_HOST='{}'", served.host());
    println!("export TFC_ORGANIZATION='{}'", TestTfc::ORGANIZATION);

    let mut input = tokio::io::stdin();
    let mut ignored = [0; 256];
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped?,
        () = async { while input.read(&mut ignored).await.is_ok_and(|count| count > 0) {} } => {}
    }
    Ok(())
}
