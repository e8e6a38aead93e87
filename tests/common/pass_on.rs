//! Stores that stand before another one and look at what goes through.

/// The methods of a `Store` that only hands them on to the store in its field `$inner`: those that are named, or all but
/// `submit`, which is what such a store is made for.
macro_rules! pass_on {
    ($inner:tt) => {
        pass_on!($inner: about, read, rows, published, dump, run, runs, close);
    };
    ($inner:tt: $($method:ident),+) => {
        $(pass_on!(@ $method $inner);)+
    };
    (@ about $inner:tt) => {
        fn about(&self) -> &durable::store::About {
            self.$inner.about()
        }
    };
    (@ read $inner:tt) => {
        fn read(
            &self,
            run: &durable::RunId,
            generation: durable::Generation,
            from: durable::Seq,
            most: usize,
        ) -> Result<Vec<durable::store::Record>, durable::StoreError> {
            self.$inner.read(run, generation, from, most)
        }
    };
    (@ rows $inner:tt) => {
        fn rows(
            &self,
            run: &durable::RunId,
            after: u64,
            most: usize,
        ) -> Result<Vec<(u64, durable::store::Row)>, durable::StoreError> {
            self.$inner.rows(run, after, most)
        }
    };
    (@ published $inner:tt) => {
        fn published(
            &self,
            run: &durable::RunId,
        ) -> Result<Vec<(std::sync::Arc<str>, durable::store::Published)>, durable::StoreError> {
            self.$inner.published(run)
        }
    };
    (@ dump $inner:tt) => {
        fn dump(&self, run: &durable::RunId) -> Result<Option<durable::store::Dump>, durable::StoreError> {
            self.$inner.dump(run)
        }
    };
    (@ run $inner:tt) => {
        fn run(&self, run: &durable::RunId) -> Result<Option<durable::store::RunRecord>, durable::StoreError> {
            self.$inner.run(run)
        }
    };
    (@ runs $inner:tt) => {
        fn runs(
            &self,
            live: Option<bool>,
            after: Option<&durable::RunId>,
            most: usize,
        ) -> Result<Vec<(durable::RunId, durable::store::RunRecord)>, durable::StoreError> {
            self.$inner.runs(live, after, most)
        }
    };
    (@ close $inner:tt) => {
        fn close(&self) -> Result<(), durable::StoreError> {
            self.$inner.close()
        }
    };
}

pub(crate) use pass_on;
