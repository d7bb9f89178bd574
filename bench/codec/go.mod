module github.com/muster-dev/muster/bench/codec

go 1.26.0

require (
	github.com/klauspost/compress v1.20.3
	github.com/muster-dev/muster v0.0.0
	github.com/parquet-go/parquet-go v0.25.1
)

require (
	github.com/andybalholm/brotli v1.1.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pierrec/lz4/v4 v4.1.21 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/muster-dev/muster => ../../
