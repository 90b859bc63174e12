//! The schemes of store URLs, and the features that they need.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scheme {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) feature: &'static str,
    pub(crate) is_built: bool,
    pub(crate) example: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    Redis,
    RedisSentinel,
    RedisCluster,
    RedisQuorum,
    DynamoDb,
    Postgres,
    Etcd,
    Kubernetes,
}

pub(crate) fn find(name: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|scheme| scheme.name.eq_ignore_ascii_case(name))
}

pub(crate) fn listed() -> String {
    let built: Vec<_> = SCHEMES.iter().filter(|it| it.is_built).map(|it| it.example).collect();
    let mut features: Vec<_> = SCHEMES.iter().filter(|it| !it.is_built).collect();
    features.dedup_by_key(|scheme| scheme.feature);
    let built = if built.is_empty() { "none".to_owned() } else { built.join(", ") };
    let absent: Vec<_> =
        features.iter().map(|it| format!("{} (feature {})", it.name, it.feature)).collect();
    if absent.is_empty() {
        return format!("this program has {built}");
    }
    format!("this program has {built}; it was built without {}", absent.join(", "))
}

const SCHEMES: [Scheme; 16] = [
    scheme("memory", Kind::Memory, "memory", cfg!(feature = "memory"), "memory:"),
    scheme(
        "sqlite",
        Kind::Sqlite,
        "sqlite",
        cfg!(feature = "sqlite"),
        "sqlite:///var/lib/leases.db",
    ),
    scheme("redis", Kind::Redis, "redis", cfg!(feature = "redis"), "redis://HOST:6379"),
    scheme(
        "redis+sentinel",
        Kind::RedisSentinel,
        "redis",
        cfg!(feature = "redis"),
        "redis+sentinel://HOST:26379,HOST:26379,HOST:26379/MASTER",
    ),
    scheme(
        "redis+cluster",
        Kind::RedisCluster,
        "redis",
        cfg!(feature = "redis"),
        "redis+cluster://HOST:6379,HOST:6379",
    ),
    scheme(
        "redis+quorum",
        Kind::RedisQuorum,
        "redis",
        cfg!(feature = "redis"),
        "redis+quorum://HOST:6379,HOST:6379,HOST:6379",
    ),
    scheme("rediss", Kind::Redis, "tls", cfg!(feature = "tls"), "rediss://HOST:6379"),
    scheme(
        "rediss+sentinel",
        Kind::RedisSentinel,
        "tls",
        cfg!(feature = "tls"),
        "rediss+sentinel://HOST:26379,HOST:26379,HOST:26379/MASTER",
    ),
    scheme(
        "rediss+cluster",
        Kind::RedisCluster,
        "tls",
        cfg!(feature = "tls"),
        "rediss+cluster://HOST:6379,HOST:6379",
    ),
    scheme(
        "rediss+quorum",
        Kind::RedisQuorum,
        "tls",
        cfg!(feature = "tls"),
        "rediss+quorum://HOST:6379,HOST:6379,HOST:6379",
    ),
    scheme(
        "dynamodb",
        Kind::DynamoDb,
        "dynamodb",
        cfg!(feature = "dynamodb"),
        "dynamodb://TABLE?region=REGION",
    ),
    scheme(
        "postgres",
        Kind::Postgres,
        "postgres",
        cfg!(feature = "postgres"),
        "postgres://USER@HOST/DATABASE",
    ),
    scheme(
        "postgresql",
        Kind::Postgres,
        "postgres",
        cfg!(feature = "postgres"),
        "postgresql://USER@HOST/DATABASE",
    ),
    scheme("etcd", Kind::Etcd, "etcd", cfg!(feature = "etcd"), "etcd://HOST:2379,HOST:2379"),
    scheme("etcds", Kind::Etcd, "etcd", cfg!(feature = "etcd"), "etcds://HOST:2379,HOST:2379"),
    scheme("k8s", Kind::Kubernetes, "kubernetes", cfg!(feature = "kubernetes"), "k8s://NAMESPACE"),
];

const fn scheme(
    name: &'static str,
    kind: Kind,
    feature: &'static str,
    is_built: bool,
    example: &'static str,
) -> Scheme {
    Scheme { name, kind, feature, is_built, example }
}
