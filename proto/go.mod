module apipay.io/hub/proto

go 1.26.0

tool google.golang.org/protobuf/cmd/protoc-gen-go

require (
	github.com/go-json-experiment/json v1.27.2
	github.com/stretchr/testify v1.12.1
	google.golang.org/protobuf v1.36.12
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
