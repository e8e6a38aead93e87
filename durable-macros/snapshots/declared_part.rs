trait Tool {
    fn call<'durable, 'durable0, 'durable1>(
        &'durable0 self,
        input: &'durable1 str,
    ) -> ::durable::Part<'durable, String>
    where
        'durable0: 'durable,
        'durable1: 'durable;
}
