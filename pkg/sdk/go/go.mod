module apipay.io/hub/pkg/sdk/go

go 1.24
