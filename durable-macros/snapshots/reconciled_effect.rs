fn charge(cents: u64) -> ::durable::EffectCall<Result<u64, Error>> {
    fn __body(mut cents: u64) -> Result<u64, Error> {
        cents += 1;
        Ok(cents)
    }
    const __P0: ::durable::__rt::Param<u64> = ::durable::__rt::Param::new("cents");
    type __R = Result<u64, Error>;
    fn __shape(__probe: ::durable::__rt::Probe<__R>) -> ::durable::__rt::Shape<__R> {
        use ::durable::__rt::probe::*;
        (&&&__probe).shape((&&&__probe).text())
    }
    static __META: ::durable::__rt::EffectMeta = ::durable::__rt::EffectMeta {
        name: "charge",
        explicit_name: false,
        function: "charge",
        module: ::core::module_path!(),
        file: ::core::file!(),
        line: ::core::line!(),
        id: ::durable::__rt::effect_id("charge"),
        contract: ::durable::__rt::Contract::AtMostOnce,
        in_doubt: ::durable::__rt::WhenInDoubt::Reconcile {
            settle_ms: 120000u64,
            run: |__call| ::std::boxed::Box::pin(async move {
                let __a0 = __call.arg(&__P0)?;
                ::core::result::Result::Ok(
                    __call
                        .reconciled::<
                            __R,
                            _,
                        >(__shape, find(__call.context(), __a0).await),
                )
            }),
        },
        kind: ::core::option::Option::None,
        retry: ::core::option::Option::None,
        timeout_ms: ::core::option::Option::Some(300000u64),
        params: &["cents"],
        resources: &[],
        returns: || ::durable::__rt::returns(__shape),
        run: |__call| ::std::boxed::Box::pin(
            __call
                .blocking(|__call| {
                    let __a0 = __call.arg(&__P0)?;
                    let __out = __body(__a0);
                    ::core::result::Result::Ok(
                        __call.end(__shape, __out, ::core::option::Option::None),
                    )
                }),
        ),
    };
    ::durable::__rt::inventory::submit!(::durable::__rt::Registered::Effect(& __META));
    ::durable::__rt::EffectArgs::new(&__META).arg(&__P0, &cents).call()
}
