fn refund_agent(order: Order) -> ::durable::WorkflowCall<durable::Result<String>> {
    async fn __body(order: Order) -> durable::Result<String> {
        let policy = ::durable::__rt::step(search_policy("refund window"), &__SITES[0])
            .await?;
        let looks = ::durable::__rt::step(
                join((
                    ::durable::__rt::branch(async {
                        ::durable::__rt::step(look(&order), &__SITES[1]).await
                    }),
                    agent.turn("x").named("turn"),
                )),
                &__SITES[2],
            )
            .await;
        println!(
            "{}", x = ::durable::__rt::step(tools::ping(vec![::durable::__rt::step(one(),
            & __SITES[3]). await ?; 3]), & __SITES[4]). await
        );
        Ok(policy)
    }
    const __P0: ::durable::__rt::Param<Order> = ::durable::__rt::Param::new("order");
    type __R = durable::Result<String>;
    fn __shape(__probe: ::durable::__rt::Probe<__R>) -> ::durable::__rt::Shape<__R> {
        use ::durable::__rt::probe::*;
        (&&&__probe).shape((&&&__probe).text())
    }
    static __SITES: [::durable::__rt::Site; 5usize] = ::durable::__rt::sites(
        ::core::module_path!(),
        "refund_agent",
        ::core::file!(),
        [
            ("search_policy", ::core::line!()),
            ("look", ::core::line!()),
            ("join", ::core::line!()),
            ("one", ::core::line!()),
            ("tools::ping", ::core::line!()),
        ],
    );
    static __META: ::durable::__rt::WorkflowMeta = ::durable::__rt::WorkflowMeta {
        name: "refund",
        explicit_name: true,
        function: "refund_agent",
        module: ::core::module_path!(),
        file: ::core::file!(),
        line: ::core::line!(),
        params: &["order"],
        sites: &__SITES,
        returns: || ::durable::__rt::returns(__shape),
        run: |__args| ::durable::__rt::body(__shape, __body(__args.get(&__P0)?)),
    };
    ::durable::__rt::inventory::submit!(::durable::__rt::Registered::Workflow(& __META));
    ::durable::__rt::WorkflowArgs::new(&__META).arg(&__P0, &order).call()
}
