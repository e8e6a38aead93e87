//! Workflows that a stored run could be taken for: a binary that has two of one name does not open.
//!
//! This binary has such twins, so no runtime opens in it; it holds nothing else.

use durable::{Code, Runtime};

struct Billing;

impl Billing {
    #[durable::workflow]
    #[allow(dead_code, reason = "it is registered where it stands")]
    async fn run(order: String) -> String {
        format!("bill {order}")
    }
}

struct Shipping;

impl Shipping {
    #[durable::workflow]
    #[allow(dead_code, reason = "it is registered where it stands")]
    async fn run(order: String) -> String {
        format!("ship {order}")
    }
}

#[tokio::test]
async fn two_workflows_of_one_name_in_one_module_are_refused_with_both_places() {
    let refused = Runtime::builder().open_in_memory().await.expect_err("two workflows are called run");
    assert_eq!(refused.code(), Code::NameTwice);
    let text = refused.to_string();
    assert_eq!(text.matches("tests/twins.rs:").count(), 2, "{text}");
}
