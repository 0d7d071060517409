module apipay.io/hub/services/admin-api

go 1.26.0

require (
	apipay.io/hub/migrations v0.0.0
	apipay.io/hub/pkg v0.0.0
	apipay.io/hub/pkg/devstack v0.0.0
	apipay.io/hub/proto v0.0.0
)

replace apipay.io/hub/migrations => ../../migrations

replace apipay.io/hub/pkg => ../../pkg

replace apipay.io/hub/pkg/devstack => ../../pkg/devstack

replace apipay.io/hub/proto => ../../proto
