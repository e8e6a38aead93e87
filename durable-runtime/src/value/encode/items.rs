//! The items of an array or map, whichever of serde's kinds it is.

use serde::{Serialize, Serializer, ser};

use super::{Encoder, Head, NIL, Refused, Sink};

/// Writes the items of an array or map whose head is already there, and mends the head at the end.
pub(super) struct Items<'a> {
    sink: &'a mut Sink,
    /// Arrays and maps around an item.
    depth: usize,
    /// Where the head begins in the sink, and where it ends.
    start: usize,
    body: usize,
    map: bool,
    /// Items that the head speaks of. A type may be wrong about it, or not know.
    promised: usize,
    /// Items written.
    count: usize,
    nil_is_data: bool,
    /// Whether a value of a map was nil.
    has_nil: bool,
    tracks: bool,
}

impl<'a> Items<'a> {
    /// Writes the head.
    pub(super) fn new(
        sink: &'a mut Sink,
        depth: usize,
        map: bool,
        promised: usize,
        nil_is_data: bool,
        tracks: bool,
    ) -> Result<Items<'a>, Refused> {
        let head = Head::new(map, promised, false)?;
        let start = sink.get_ref().len();
        sink.get_mut().extend_from_slice(head.as_slice());
        let body = sink.get_ref().len();
        Ok(Items { sink, depth, start, body, map, promised, count: 0, nil_is_data, has_nil: false, tracks })
    }

    fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        value.serialize(Encoder { sink: &mut *self.sink, depth: self.depth, in_some: false, tracks: self.tracks })
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.count += 1;
        self.put(value)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Refused> {
        self.count += 1;
        self.sink.serialize_str(name)?;
        self.put(value)
    }

    fn close(self) -> Result<(), Refused> {
        let wide = self.nil_is_data && self.has_nil;
        if wide || self.count != self.promised {
            let head = Head::new(self.map, self.count, wide)?;
            self.sink.get_mut().splice(self.start..self.body, head.as_slice().iter().copied());
        }
        Ok(())
    }
}

impl ser::SerializeSeq for Items<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.element(value)
    }

    fn end(self) -> Result<(), Refused> {
        self.close()
    }
}

impl ser::SerializeTuple for Items<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.element(value)
    }

    fn end(self) -> Result<(), Refused> {
        self.close()
    }
}

impl ser::SerializeTupleStruct for Items<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.element(value)
    }

    fn end(self) -> Result<(), Refused> {
        self.close()
    }
}

impl ser::SerializeTupleVariant for Items<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.element(value)
    }

    fn end(self) -> Result<(), Refused> {
        self.close()
    }
}

impl ser::SerializeMap for Items<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        self.element(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        let start = self.sink.get_ref().len();
        self.put(value)?;
        self.has_nil |= self.sink.get_ref()[start..] == [NIL];
        Ok(())
    }

    fn end(self) -> Result<(), Refused> {
        self.close()
    }
}

impl ser::SerializeStruct for Items<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Refused> {
        self.field(name, value)
    }

    fn end(self) -> Result<(), Refused> {
        self.close()
    }
}

impl ser::SerializeStructVariant for Items<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Refused> {
        self.field(name, value)
    }

    fn end(self) -> Result<(), Refused> {
        self.close()
    }
}
