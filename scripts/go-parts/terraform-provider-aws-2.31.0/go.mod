module tools

go 1.26.6

require github.com/terraform-providers/terraform-provider-aws v1.60.1-0.20191003145700-f8707a46c6ec

// Only its tests need it, and no checksum database knows it.
exclude github.com/terraform-providers/terraform-provider-tls v2.1.0+incompatible
