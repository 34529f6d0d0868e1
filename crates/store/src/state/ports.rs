//! The read ports of the state, implemented once for every adapter that has a [`super::View`].

/// Implements the read ports for a store with two methods: `point`, for reads of a few keys, and `long`, for reads that
/// may visit many keys and so must not block an async thread.
macro_rules! impl_state_reads {
    ($store:ty) => {
        #[async_trait::async_trait]
        impl $crate::port::CursorReads for $store {
            async fn cursor(
                &self,
                group: &promethean_model::GroupName,
                topic: &promethean_model::TopicName,
            ) -> Result<Option<$crate::port::Cursor>, $crate::port::ReadError> {
                self.point(|view| $crate::state::read::cursor(view, group, topic))
            }

            async fn cursors_of_topic(
                &self,
                topic: &promethean_model::TopicName,
            ) -> Result<Vec<$crate::port::GroupCursor>, $crate::port::ReadError> {
                let topic = topic.clone();
                self.long(move |view| Ok($crate::state::read::cursors_of_topic(view, &topic)?)).await
            }

            async fn cursors_of_group(
                &self,
                group: &promethean_model::GroupName,
            ) -> Result<Vec<$crate::port::GroupCursor>, $crate::port::ReadError> {
                let group = group.clone();
                self.long(move |view| Ok($crate::state::read::cursors_of_group(view, &group)?)).await
            }
        }

        #[async_trait::async_trait]
        impl $crate::port::DocReads for $store {
            async fn collection(
                &self,
                name: &promethean_model::CollectionName,
            ) -> Result<Option<$crate::port::CollectionInfo>, $crate::port::ReadError> {
                self.point(|view| $crate::state::read::collection(view, name))
            }

            async fn collections(
                &self,
                after: Option<&promethean_model::CollectionName>,
                limit: usize,
            ) -> Result<Vec<$crate::port::CollectionInfo>, $crate::port::ReadError> {
                let after = after.cloned();
                self.long(move |view| Ok($crate::state::read::collections(view, after.as_ref(), limit)?))
                    .await
            }

            async fn doc(
                &self,
                collection: &promethean_model::CollectionName,
                key: &str,
            ) -> Result<Option<$crate::port::Doc>, $crate::port::ReadError> {
                self.point(|view| $crate::state::read::doc(view, collection, key))
            }

            async fn docs_by_key(
                &self,
                collection: &promethean_model::CollectionName,
                after: Option<&str>,
                limit: usize,
            ) -> Result<Vec<$crate::port::Doc>, $crate::port::ReadError> {
                let (collection, after) = (collection.clone(), after.map(str::to_owned));
                self.long(move |view| {
                    $crate::state::read::docs_by_key(view, &collection, after.as_deref(), limit)
                })
                .await
            }

            async fn query(
                &self,
                query: &$crate::port::DocQuery,
            ) -> Result<$crate::port::DocPage, $crate::port::ReadError> {
                let query = query.clone();
                self.long(move |view| $crate::state::read::query(view, &query)).await
            }
        }

        #[async_trait::async_trait]
        impl $crate::port::CatalogReads for $store {
            async fn settings(
                &self,
                topic: &promethean_model::TopicName,
            ) -> Result<Option<promethean_model::TopicSettings>, $crate::port::ReadError> {
                self.point(|view| $crate::state::read::settings(view, topic))
            }

            async fn settings_page(
                &self,
                after: Option<&promethean_model::TopicName>,
                limit: usize,
            ) -> Result<Vec<$crate::port::TopicConfig>, $crate::port::ReadError> {
                let after = after.cloned();
                self.long(move |view| Ok($crate::state::read::settings_page(view, after.as_ref(), limit)?))
                    .await
            }
        }

        #[async_trait::async_trait]
        impl $crate::port::DedupeReads for $store {
            async fn seen(
                &self,
                scope: &str,
                id: &str,
                now_ms: i64,
            ) -> Result<bool, $crate::port::ReadError> {
                self.point(|view| $crate::state::read::seen(view, scope, id, now_ms))
            }

            async fn marks(&self, scope: &str, limit: usize) -> Result<Vec<String>, $crate::port::ReadError> {
                let scope = scope.to_owned();
                self.long(move |view| Ok($crate::state::read::marks(view, &scope, limit)?)).await
            }
        }

        #[async_trait::async_trait]
        impl $crate::port::OutboxReads for $store {
            async fn outbox(
                &self,
                status: $crate::port::OutboxStatus,
                after: Option<u64>,
                limit: usize,
            ) -> Result<Vec<$crate::port::OutboxRow>, $crate::port::ReadError> {
                self.long(move |view| Ok($crate::state::read::outbox(view, status, after, limit)?)).await
            }

            async fn outbox_row(
                &self,
                id: promethean_model::EventId,
            ) -> Result<Option<$crate::port::OutboxRow>, $crate::port::ReadError> {
                self.point(|view| $crate::state::read::outbox_row(view, id))
            }
        }

        #[async_trait::async_trait]
        impl $crate::port::RowReads for $store {
            async fn row(
                &self,
                table: $crate::port::Table,
                key: &[u8],
            ) -> Result<Option<Vec<u8>>, $crate::port::ReadError> {
                self.point(|view| $crate::state::read::row(view, table, key))
            }

            async fn rows(
                &self,
                table: $crate::port::Table,
                prefix: &[u8],
                after: Option<&[u8]>,
                limit: usize,
            ) -> Result<Vec<$crate::port::Row>, $crate::port::ReadError> {
                let (prefix, after) = (prefix.to_vec(), after.map(<[u8]>::to_vec));
                self.long(move |view| {
                    Ok($crate::state::read::rows(view, table, &prefix, after.as_deref(), limit)?)
                })
                .await
            }
        }
    };
}

pub(crate) use impl_state_reads;
