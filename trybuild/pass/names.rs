//! Names of the user's that could meet ours.
#![deny(warnings)]
#![allow(dead_code, non_snake_case)]

use serde::{Deserialize, Serialize};

mod std {}
mod core {}
mod alloc {}
mod inventory {}

type Result<T> = ::core::result::Result<T, String>;
type Box = u8;
type Option = u16;
struct Some;
fn Ok() {}
struct Err;
trait Step {}
trait Recordable {}

#[derive(Serialize, Deserialize)]
struct Probe(u8);
#[derive(Serialize, Deserialize)]
struct Shape(u8);
#[derive(Serialize, Deserialize)]
struct Plain(u8);
#[derive(Serialize, Deserialize)]
struct Site(u8);
#[derive(Serialize, Deserialize)]
struct String(u8);

#[durable::effect(read_only)]
async fn probe(shape: Shape, probe: Box, option: Option) -> Probe {
    Probe(shape.0 + probe + option as u8)
}

#[durable::effect(key = "{type}:{__call}")]
async fn r#match(cx: &durable::EffectContext, r#type: u8, __call: u8, __out: u8, __args: u8, __a0: u8) -> Plain {
    Plain(r#type + __call + __out + __args + __a0 + cx.idempotency_key().len() as u8)
}

#[durable::workflow]
async fn r#loop(r#fn: Site, __args: u8, __a0: u8, step: u8, site: u8) -> Result<u8> {
    let async_ = async { probe(Shape(1), 2, 3).await };
    let Probe(n) = async_.await;
    let Plain(m) = r#match(n, __args, __a0, step, site).await;
    ::core::result::Result::Ok(r#fn.0 + m)
}

#[durable::part]
async fn r#while<'a, T>(r#type: &'a str, __out: T, __ret: u8) -> (&'a str, T, u8)
where
    T: Send,
{
    probe(Shape(__ret), 1, 2).await;
    (r#type, __out, __ret)
}

#[durable::workflow]
async fn calls(call: u8, args: u8, meta: u8) -> u8 {
    r#while("x", call, args).await;
    r#loop(Site(1), 2, 3, 4, 5).await.unwrap_or(meta)
}

fn main() {
    let _ = calls(1, 2, 3);
}
