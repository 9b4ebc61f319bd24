//! DescribeCluster (60).

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse, ENDPOINT_BROKERS,
};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for DescribeClusterRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=2;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<DescribeClusterResponse> {
        if self.endpoint_type != ENDPOINT_BROKERS {
            return Reply::Now(self.refuse(call, ErrorCode::MismatchedEndpointType));
        }
        let broker = |(id, node): (&_, &crate::model::Node)| DescribeClusterBroker {
            broker_id: *id,
            host: node.host.clone(),
            port: i32::from(node.port),
            ..Default::default()
        };
        Reply::Now(DescribeClusterResponse {
            cluster_id: model.cluster_id.to_string(),
            controller_id: call.broker,
            brokers: model.nodes.iter().map(broker).collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> DescribeClusterResponse {
        DescribeClusterResponse {
            error_code: error,
            error_message: Some(error.name().to_owned()),
            ..Default::default()
        }
    }
}
