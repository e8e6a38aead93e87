pub(crate) fn turn<'durable, 'durable0, 'durable1, 'durable2, T: Tool + 'durable>(
    &'durable0 mut self,
    history: &'durable1 mut Vec<T>,
    q: Cow<'durable2, str>,
) -> ::durable::Part<'durable, Result<&'durable0 T, Error>>
where
    'durable0: 'durable,
    'durable1: 'durable,
    'durable2: 'durable,
{
    static __SITES: [::durable::__rt::Site; 1usize] = ::durable::__rt::sites(
        ::core::module_path!(),
        "turn",
        ::core::file!(),
        [("look", ::core::line!())],
    );
    static __META: ::durable::__rt::PartMeta = ::durable::__rt::PartMeta {
        name: "turn",
        module: ::core::module_path!(),
        file: ::core::file!(),
        line: ::core::line!(),
        sites: &__SITES,
    };
    ::durable::__rt::inventory::submit!(::durable::__rt::Registered::Part(& __META));
    ::durable::__rt::part(
        &__META,
        async move {
            if let ::core::option::Option::Some(__out) = ::core::option::Option::None::<
                Result<&'durable0 T, Error>,
            > {
                return __out;
            }
            {
                history.push(::durable::__rt::step(look(&q), &__SITES[0]).await?);
                Ok(&self.tool)
            }
        },
    )
}
