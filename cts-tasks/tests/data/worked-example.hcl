log_level   = "INFO"
port        = 8558
id          = "cts-01"
working_dir = "/var/lib/cts/tasks"
syslog { facility = "local2" }
buffer_period { enabled = true  min = "5s"  max = "20s" }
consul {
  address = "localhost:8500"
  token   = "secret-token"
  service_registration { service_name = "cts"  default_check { address = "http://172.22.0.2:8558" } }
}
vault { address = "https://vault.example.com" }
driver "terraform" {
  path = "/opt/cts/bin"
  backend "consul" { gzip = true }
  required_providers { aws = { source = "hashicorp/aws"  version = "~> 5.0" } }
}
terraform_provider "aws" {
  alias  = "a"
  region = "us-east-1"
  task_env { "AWS_ACCESS_KEY_ID" = "{{ env \"CTS_AWS_KEY\" }}" }
}
task {
  name        = "lb"
  description = "update the load balancer"
  module      = "org/lb/cts"
  version     = "1.2.0"
  providers   = ["aws.a"]
  variable_files = ["tests/data/lb.tfvars"]
  buffer_period { min = "10s" }
  condition "services" {
    names  = ["api", "web"]
    filter = "Service.Tags not contains \"canary\""
    cts_user_defined_meta { tier = "front" }
  }
  module_input "consul-kv" { path = "lb/settings"  recurse = true }
}
task {
  name   = "nightly"
  module = "./modules/report"
  condition "schedule" { cron = "0 3 * * *" }
  module_input "services" { regexp = "^web.*" }
}
