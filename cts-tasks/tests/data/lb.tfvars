# Variables of the load balancer.
pool     = "front"
size     = 3
weights  = [1, 2.50, 12345678901234567890123]
settings = {
  "sticky" = true
  timeout  = null
}
banner = <<EOT
hello
EOT
