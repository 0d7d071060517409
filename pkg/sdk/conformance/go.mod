module apipay.io/hub/pkg/sdk/conformance

go 1.26.0
