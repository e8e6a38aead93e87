/// Refunds.
pub fn process_refund(
    order_id: &str,
    cents: u64,
) -> ::durable::EffectCall<Result<Receipt, PaymentError>> {
    #[tracing::instrument(name = "process_refund")]
    async fn __body(
        cx: &EffectContext,
        gateway: &Gateway,
        order_id: &str,
        cents: u64,
    ) -> Result<Receipt, PaymentError> {
        gateway.refund(order_id, cents, cx.idempotency_key()).await
    }
    const __P0: ::durable::__rt::Param<str, ::durable::__rt::Lent<str>> = ::durable::__rt::Param::lent(
        "order_id",
    );
    const __P1: ::durable::__rt::Param<u64> = ::durable::__rt::Param::new("cents");
    type __R = Result<Receipt, PaymentError>;
    fn __shape(__probe: ::durable::__rt::Probe<__R>) -> ::durable::__rt::Shape<__R> {
        use ::durable::__rt::probe::*;
        (&&&__probe).shape((&&&__probe).text())
    }
    static __META: ::durable::__rt::EffectMeta = ::durable::__rt::EffectMeta {
        name: "process_refund",
        explicit_name: false,
        function: "process_refund",
        module: ::core::module_path!(),
        file: ::core::file!(),
        line: ::core::line!(),
        id: ::durable::__rt::effect_id("process_refund"),
        contract: ::durable::__rt::Contract::Keyed,
        in_doubt: ::durable::__rt::WhenInDoubt::Hold,
        kind: ::core::option::Option::None,
        retry: ::core::option::Option::Some(::durable::__rt::Retry {
            attempts: 5u32,
            first_ms: 1000u64,
            max_ms: 60000u64,
            factor: 2f64,
        }),
        timeout_ms: ::core::option::Option::Some(300000u64),
        params: &["order_id", "cents"],
        resources: &[
            ::durable::__rt::ResourceMeta {
                name: "gateway",
                type_name: ::core::any::type_name::<Gateway>,
                type_id: ::core::any::TypeId::of::<Gateway>,
            },
        ],
        returns: || ::durable::__rt::returns(__shape),
        run: |__call| ::std::boxed::Box::pin(async move {
            let __a0 = __call.arg(&__P0)?;
            let __a1 = __call.arg(&__P1)?;
            let __out = __body(
                    __call.context(),
                    __call.resource::<Gateway>(),
                    &*__a0,
                    __a1,
                )
                .await;
            ::core::result::Result::Ok(
                __call
                    .end(
                        __shape,
                        __out,
                        ::core::option::Option::Some(|__out| match __out {
                            ::core::result::Result::Err(__error) => {
                                PaymentError::is_transient(__error)
                            }
                            _ => false,
                        }),
                    ),
            )
        }),
    };
    ::durable::__rt::inventory::submit!(::durable::__rt::Registered::Effect(& __META));
    ::durable::__rt::EffectArgs::new(&__META)
        .arg(&__P0, order_id)
        .arg(&__P1, &cents)
        .key_value(order_id, ':')
        .key_text(":refund:")
        .key_value(&cents, '\0')
        .call()
}
