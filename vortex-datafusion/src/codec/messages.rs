//! The messages.

use std::collections::HashMap;

use datafusion_proto::protobuf;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Node {
    #[prost(message, optional, tag = "1")]
    pub(super) scan: Option<Scan>,
    #[prost(message, optional, tag = "2")]
    pub(super) sink: Option<Sink>,
    /// The aggregation whose groups are found by codes, over no rows.
    #[prost(message, optional, tag = "3")]
    pub(super) grouping: Option<protobuf::PhysicalPlanNode>,
    /// Rows whose order is not told.
    #[prost(message, optional, tag = "4")]
    pub(super) unordered: Option<Unordered>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Unordered {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Scan {
    #[prost(message, optional, tag = "1")]
    pub(super) base: Option<protobuf::FileScanExecConf>,
    #[prost(message, repeated, tag = "2")]
    pub(super) accepted: Vec<protobuf::PhysicalExprNode>,
    #[prost(message, repeated, tag = "3")]
    pub(super) hints: Vec<protobuf::PhysicalExprNode>,
    #[prost(map = "string, string", tag = "4")]
    pub(super) options: HashMap<String, String>,
    /// The limit in `base` has only 32 bits.
    #[prost(uint64, optional, tag = "5")]
    pub(super) limit: Option<u64>,
    #[prost(bool, tag = "6")]
    pub(super) preserve_order: bool,
    /// The columns of the order whose best rows come first.
    #[prost(message, repeated, tag = "7")]
    pub(super) best_first: Vec<SortKey>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) best_rows: Option<u64>,
    /// What `base` lacks of each of its files.
    #[prost(message, repeated, tag = "9")]
    pub(super) files: Vec<File>,
    /// The functions whose states the scan returns instead of rows; `base` then projects all columns.
    #[prost(message, repeated, tag = "10")]
    pub(super) functions: Vec<Aggregate>,
    /// Whether the plan is not told which filter the rows satisfy.
    #[prost(bool, tag = "11")]
    pub(super) hides_filter: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Aggregate {
    /// The name of the function in a session.
    #[prost(string, tag = "1")]
    pub(super) function: String,
    /// The name of the column that it computes.
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) arguments: Vec<protobuf::PhysicalExprNode>,
}

/// A file, which DataFusion identifies only by its size and time.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct File {
    #[prost(string, optional, tag = "1")]
    pub(super) e_tag: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) version: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) selection: Option<Selection>,
}

/// A [`RowSelection`].
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Selection {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) rows: Vec<u64>,
    /// Whether these rows are skipped, instead of all others.
    #[prost(bool, tag = "2")]
    pub(super) except: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Sink {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<protobuf::FileSinkConfig>,
    #[prost(map = "string, string", tag = "2")]
    pub(super) options: HashMap<String, String>,
    #[prost(message, repeated, tag = "3")]
    pub(super) order: Vec<SortKey>,
    #[prost(map = "string, string", tag = "4")]
    pub(super) metadata: HashMap<String, String>,
    /// The levels of single columns.
    #[prost(map = "string, string", tag = "5")]
    pub(super) levels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SortKey {
    #[prost(message, optional, tag = "1")]
    pub(super) expr: Option<protobuf::PhysicalExprNode>,
    #[prost(bool, optional, tag = "2")]
    pub(super) descending: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub(super) nulls_first: Option<bool>,
}
