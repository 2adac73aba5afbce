# Every block and attribute that both formats share.
log_level   = "warn"
port        = 8502
id          = "cts-long"
working_dir = "working"

syslog {
  enabled  = true
  facility = "LOCAL2"
  name     = "cts"
}

buffer_period {
  enabled = true
  min     = "20s"
  max     = "60s"
}

"consul" = {
  address       = "consul-example.com"
  token         = "abcd-token"
  kv_path       = "kv_path"
  kv_namespace  = "kv_namespace"
  auth {
    username = "user"
    password = "hunter2"
  }
  tls {
    enabled     = true
    ca_cert     = "ca_cert"
    ca_path     = "ca_path"
    cert        = "client_cert"
    key         = "client_key"
    server_name = "server_name"
    verify      = false
  }
  transport {
    dial_keep_alive         = "5s"
    dial_timeout            = "10s"
    disable_keep_alives     = false
    idle_conn_timeout       = "1m"
    max_idle_conns          = 0x64
    max_idle_conns_per_host = 10
    tls_handshake_timeout   = "1m30s"
  }
  service_registration {
    service_name  = "cts-service"
    address       = "172.22.0.2"
    namespace     = "ns"
    default_check = { enabled = false, address = "http://172.22.0.2:8558" }
  }
}

vault {
  address = "https://vault.example.com"
  token   = "vault-token"
}

driver "terraform" {
  log         = true
  persist_log = true
  path        = "path"
  backend "consul" {
    scheme = "https"
    path   = "consul-terraform-sync/terraform"
  }
  required_providers {
    X = "~> 1.0"
    Y = {
      version = "= 2.0"
      source  = "org/y"
    }
  }
}

terraform_provider "X" {
  regions = ["eu"]
  limits {
    low  = 1
    high = 2.50
  }
  task_env {
    "X_TOKEN" = "{{ env \"CTS_X\" }}"
  }
}

terraform_provider "Y" {
  alias  = "why"
  secret = "{{ with secret \"secret/y\" }}{{ .Data.data.y }}{{ end }}"
}

task {
  name           = "task"
  description    = "automate services for X to do Y"
  module         = "Y"
  version        = "v1"
  enabled        = true
  working_dir    = "long"
  providers      = ["X", "Y.why"]
  variable_files = ["tests/data/lb.tfvars"]
  buffer_period {
    enabled = true
    min     = "30s"
  }
  condition "catalog-services" {
    regexp              = ".*"
    use_as_module_input = true
    datacenter          = "dc2"
    namespace           = "ns2"
    node_meta {
      key = "value"
    }
  }
  module_input "services" {
    names  = ["serviceA", "serviceB"]
    filter = "Service.Tags not contains \"x\""
    cts_user_defined_meta = {
      tier = "front"
    }
  }
  module_input "consul-kv" {
    path       = "key-path"
    recurse    = true
    datacenter = "dc2"
    namespace  = "ns2"
  }
}

task {
  name   = "second"
  module = "./second"
  condition "schedule" {
    cron = "* * * * * * *"
  }
}
